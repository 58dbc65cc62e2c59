/* What hiredis hears of the RESP door at HOST PORT. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

#undef NDEBUG

static redisReply *ask(redisContext *c, const char *list, const char *sender)
{
	redisReply *r = redisCommand(c, "SISMEMBER %s %s", list, sender);
	assert(r != NULL);
	return r;
}

int main(int argc, char **argv)
{
	assert(argc == 3);
	redisContext *c = redisConnect(argv[1], atoi(argv[2]));
	assert(c != NULL && c->err == 0);
	redisReply *r = ask(c, "senders", "x@bad.example");
	assert(r->type == REDIS_REPLY_INTEGER && r->integer == 1);
	freeReplyObject(r);
	r = ask(c, "senders", "good@bad.example");
	assert(r->type == REDIS_REPLY_INTEGER && r->integer == 0);
	freeReplyObject(r);
	r = ask(c, "senders", "a b");
	assert(r->type == REDIS_REPLY_ERROR && strstr(r->str, "no sender") != NULL);
	freeReplyObject(r);
	for (int i = 0; i < 10000; i++)
		assert(redisAppendCommand(c, "HGET spam %s", i % 2 ? "x@bad.example" : "x@clear.example") == REDIS_OK);
	for (int i = 0; i < 10000; i++) {
		assert(redisGetReply(c, (void **)&r) == REDIS_OK);
		assert(r->type == (i % 2 ? REDIS_REPLY_STRING : REDIS_REPLY_NIL));
		freeReplyObject(r);
	}
	redisFree(c);
	puts("hiredis: well");
	return 0;
}

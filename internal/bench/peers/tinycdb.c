/* tinycdb DB LISTED ABSENT: for each word on standard input, listed, absent or
 * open, prints how many keys of that file are in the cdb when it has asked for
 * all of them; for open, opens it anew and asks for one key. */
#include <cdb.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct keys {
	char *text;
	size_t length;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct keys contents(const char *path)
{
	struct keys k;
	struct stat st;
	int fd = open(path, O_RDONLY);

	if (fd < 0 || fstat(fd, &st) < 0)
		die(path);
	k.length = st.st_size;
	k.text = malloc(k.length);
	for (size_t at = 0; at < k.length;) {
		ssize_t n = read(fd, k.text + at, k.length - at);
		if (n <= 0)
			die(path);
		at += n;
	}
	close(fd);
	return k;
}

/* The value is read too: its last byte goes into sum, so that nothing is left out. */
static long found(struct cdb *db, struct keys k, long most, unsigned *sum)
{
	long n = 0;

	for (char *at = k.text, *end = k.text + k.length, *next; at < end && most > 0; at = next + 1, most--) {
		next = memchr(at, '\n', end - at);
		if (cdb_find(db, at, next - at) > 0) {
			const unsigned char *value = cdb_getdata(db);
			*sum += value[cdb_datalen(db) - 1];
			n++;
		}
	}
	return n;
}

static void opened(struct cdb *db, int *fd, const char *path)
{
	*fd = open(path, O_RDONLY);
	if (*fd < 0 || cdb_init(db, *fd) < 0)
		die(path);
}

int main(int argc, char **argv)
{
	struct cdb db;
	int fd;
	char word[16];
	unsigned sum = 0;
	long n;

	if (argc != 4)
		return 2;
	struct keys listed = contents(argv[2]), absent = contents(argv[3]);
	opened(&db, &fd, argv[1]);
	while (scanf("%15s", word) == 1) {
		if (!strcmp(word, "open")) {
			cdb_free(&db);
			close(fd);
			opened(&db, &fd, argv[1]);
			n = found(&db, listed, 1, &sum);
		} else {
			n = found(&db, !strcmp(word, "listed") ? listed : absent, 1L << 62, &sum);
		}
		printf("%ld\n", n);
		fflush(stdout);
	}
	return sum == 1; /* any use of it keeps the reads */
}

"""What redis-py hears of the RESP door at HOST PORT."""
import sys

import redis
import redis.cluster

host, port = sys.argv[1], int(sys.argv[2])


def fails(word, ask):
    try:
        ask()
    except redis.RedisError as error:
        assert word in str(error), error
        return
    raise AssertionError("no error with " + word)


for r in (redis.Redis(host=host, port=port, client_name="test"), redis.cluster.RedisCluster(host=host, port=port)):
    assert r.sismember("senders", "x@bad.example")
    assert not r.sismember("senders", "good@bad.example")
    assert r.smismember("spam", ["x@bad.example", "x@clear.example"]) == [1, 0]
    assert r.hget("spam", "x@bad.example") == b"bad.example"
    assert r.hmget("spam", ["x@clear.example", "192.0.2.1"]) == [None, b"192.0.2.0/24"]
    assert r.get("spam:x@bad.example") == b"bad.example"
    assert r.exists("spam") == 1
    assert r.execute_command("BF.EXISTS", "spam", "x@bad.example") == 1
    pipe = r.pipeline()  # a transaction, unless the client is one of a cluster
    for i in range(2000):
        pipe.sismember("spam", "x@bad.example" if i % 2 else "x@clear.example")
    assert sum(pipe.execute()) == 1000
    fails("is no sender", lambda: r.sismember("spam", "a b"))
    fails("only replica", lambda: r.sadd("spam", "x@y.example"))
print("Redis, RedisCluster: well")

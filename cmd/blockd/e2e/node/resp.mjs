// What ioredis and node-redis hear of the RESP door at HOST PORT, a line each.
import assert from 'node:assert/strict'
import Redis from 'ioredis'
import { createClient, createCluster } from 'redis'

const [host, port] = [process.argv[2], Number(process.argv[3])]

async function ioredis(r) {
  assert.equal(await r.sismember('senders', 'x@bad.example'), 1)
  assert.equal(await r.sismember('senders', 'good@bad.example'), 0)
  assert.deepEqual(await r.smismember('spam', 'x@bad.example', 'x@clear.example'), [1, 0])
  assert.equal(await r.hget('spam', 'x@bad.example'), 'bad.example')
  assert.deepEqual(await r.hmget('spam', 'x@clear.example', '192.0.2.1'), [null, '192.0.2.0/24'])
  assert.deepEqual(await r.mget('spam:x@bad.example'), ['bad.example'])
  assert.equal(await r.call('BF.EXISTS', 'spam', 'x@bad.example'), 1)
  const pipeline = r.pipeline()
  for (let i = 0; i < 2000; i++) pipeline.sismember('spam', i % 2 ? 'x@bad.example' : 'x@clear.example')
  const answers = await pipeline.exec()
  assert.equal(answers.reduce((sum, [err, n]) => sum + (err ? NaN : n), 0), 1000)
  assert.deepEqual(await r.multi().sismember('spam', 'x@bad.example').get('spam:x@clear.example').exec(), [[null, 1], [null, null]])
  await assert.rejects(r.sismember('spam', 'a b'), /is no sender/)
  await assert.rejects(r.sadd('spam', 'x@y.example'), /READONLY/)
  r.disconnect()
}

async function redis(r) {
  r.on('error', err => { throw err })
  await r.connect()
  assert.equal(Number(await r.sIsMember('senders', 'x@bad.example')), 1)
  assert.deepEqual((await r.smIsMember('spam', ['x@bad.example', 'x@clear.example'])).map(Number), [1, 0])
  assert.equal(await r.hGet('spam', 'x@clear.example'), null)
  assert.equal(await r.get('spam:x@bad.example'), 'bad.example')
  assert.deepEqual((await r.bf.mExists('spam', ['x@bad.example', 'x@clear.example'])).map(Boolean), [true, false])
  const answers = await Promise.all(Array.from({ length: 2000 }, (_, i) => r.sIsMember('spam', i % 2 ? 'x@bad.example' : 'x@clear.example')))
  assert.equal(answers.reduce((sum, n) => sum + Number(n), 0), 1000)
  await assert.rejects(r.sIsMember('spam', 'a b'), /is no sender/)
  await assert.rejects(r.set('a', 'b'), /READONLY/)
  r.destroy()
}

await ioredis(new Redis(port, host))
await ioredis(new Redis.Cluster([{ host, port }]))
await redis(createClient({ url: `redis://${host}:${port}` }))
await redis(createClient({ url: `redis://${host}:${port}`, RESP: 3 }))
await redis(createCluster({ rootNodes: [{ url: `redis://${host}:${port}` }] }))
console.log('ioredis, ioredis cluster, redis, redis RESP 3, redis cluster: well')

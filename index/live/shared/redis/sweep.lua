-- Removes live entries that have ended, with revisions, and forgets what was removed long ago: at most 500 of each.
--
-- KEYS  live log rev epoch sum ends gone owners owned
-- ARGV  for how many seconds a removal is kept
--
-- The answer is how many rows there were.
local live, log, revs, epoch, sum, ends, gone, owners, owned = unpack(KEYS)
if redis.replicate_commands then redis.replicate_commands() end
local now, rows = tonumber(redis.call('TIME')[1]), 0

for _, field in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 500)) do
  rows = rows + 1
  redis.call('ZREM', ends, field)
  local v = redis.call('HGET', live, field)
  local rev, was, hash, created, expires, rest
  if v then rev, was, hash, created, expires, rest = string.match(v, '^(%d+)\t(%d+)\t(%x*)\t(%d+)\t(%d+)\t(.*)$') end
  if was == '0' then
    local before = rev
    rev = string.format('%.0f', redis.call('INCR', revs))
    local value = rev .. '\t' .. now .. '\t' .. hash .. '\t' .. created .. '\t0\t' .. rest
    redis.call('HSET', live, field, value)
    redis.call('XADD', log, 'MAXLEN', '~', 100000, rev .. '-1', 'f', field, 'v', value)
    redis.call('ZADD', gone, now, field)
    if hash ~= '' then
      local x, words = redis.call('HGET', sum, 'x') or string.rep('0', 32), {}
      for w = 1, 32, 8 do
        words[#words + 1] = bit.tohex(bit.bxor(tonumber(string.sub(x, w, w + 7), 16), tonumber(string.sub(hash, w, w + 7), 16)))
      end
      redis.call('HSET', sum, 'x', table.concat(words))
      redis.call('HINCRBY', sum, 'n', -1)
    end
    local owner = string.match(field, '^[^\31]*')
    if owner ~= '' then
      redis.call('HINCRBY', owned, owner, '-' .. before)
      if redis.call('HINCRBY', owners, owner, -1) <= 0 then
        redis.call('HDEL', owners, owner)
        redis.call('HDEL', owned, owner)
      end
    end
  end
end
for _, field in ipairs(redis.call('ZRANGEBYSCORE', gone, '-inf', now - tonumber(ARGV[1]), 'LIMIT', 0, 500)) do
  rows = rows + 1
  redis.call('ZREM', gone, field)
  local v = redis.call('HGET', live, field)
  if v and string.match(v, '^%d+\t(%d+)') ~= '0' then redis.call('HDEL', live, field) end
end
return rows

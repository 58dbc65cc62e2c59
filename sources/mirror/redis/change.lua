local value
if #ARGV == 3 and ARGV[1] == 'put' then
  value = ARGV[3]
elseif #ARGV == 2 and ARGV[1] == 'del' then
  value = false
else
  return redis.error_reply('ERR want put ENTRY VALUE, or del ENTRY')
end
-- What is so already is no change. But a put begins a log that is not there.
if redis.call('HGET', KEYS[1], ARGV[2]) == value and (not value or redis.call('EXISTS', KEYS[2], KEYS[3]) == 2) then
  return tonumber(redis.call('GET', KEYS[3]) or 0)
end
-- The change is counted and told of before it is made: if one of these fails, blockd reads everything again.
local rev = redis.call('INCR', KEYS[3])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 1000000, '*', 'op', ARGV[1], 'f', ARGV[2])
if value then
  redis.call('HSET', KEYS[1], ARGV[2], value)
else
  redis.call('HDEL', KEYS[1], ARGV[2])
end
return rev

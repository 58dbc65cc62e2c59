-- Makes changes of the live entries of a fleet: all in order, or none.
--
-- KEYS  live log rev epoch sum ends gone owners owned
-- ARGV  an epoch if there is none, the most entries of one owner (0 = any), an owner ('' = none) with the number of entries in force
--       and the sum of their revisions that this one must have, and of each change: the field, its owner, the
--       revision that it must have ('' = any), '1' for a removal, when it was made, the hash of the row ('' = it is not
--       summed), when it ends, and the rest of the value.
--
-- A value is REV TAB GONE TAB HASH TAB CREATED TAB EXPIRES TAB REST.
local live, log, revs, epoch, sum, ends, gone, owners, owned = unpack(KEYS)
if redis.replicate_commands then redis.replicate_commands() end
local now = tonumber(redis.call('TIME')[1])
local most, count = tonumber(ARGV[2]), (#ARGV - 5) / 8
local is, more, todo, answer = {}, {}, {}, {'ok'}

local function parse(v)
  return string.match(v, '^(%d+)\t(%d+)\t(%x*)\t(%d+)\t(%d+)\t(.*)$')
end

local holder = ARGV[3]
if holder ~= '' then
  local n, total = tonumber(redis.call('HGET', owners, holder) or '0'), tonumber(redis.call('HGET', owned, holder) or '0')
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now)) do -- has ended, and is not swept yet
    if string.sub(field, 1, #holder + 1) == holder .. '\31' then
      local rev, was = string.match(redis.call('HGET', live, field) or '', '^(%d+)\t(%d+)')
      if was == '0' then n, total = n - 1, total - tonumber(rev) end
    end
  end
  if n ~= tonumber(ARGV[4]) or total ~= tonumber(ARGV[5]) then return {'changed'} end
end

for i = 0, count - 1 do
  local field, owner, want, removal, created, hash, expires, rest = unpack(ARGV, 6 + i * 8, 13 + i * 8)
  local v = is[field]
  if v == nil then v = redis.call('HGET', live, field) end
  local there, was, rev, old = false, '', '0', {}
  if v then
    old = {parse(v)}
    there = old[2] == '0'
    if there and (old[5] == '0' or tonumber(old[5]) > now) then was, rev = v, old[1] end
  end
  if want ~= '' and want ~= rev then return {'conflict', i, was} end
  local change = removal == '1' and there or removal ~= '1' and not (was ~= '' and old[5] == expires and old[6] == rest)
  answer[i + 2] = {'0', was}
  if change then
    if removal == '1' then
      rest, expires = hash ~= '' and string.match(old[6], '^[^\t]*') .. '\t\t\t' or old[6], '0'
      if owner ~= '' then more[owner] = (more[owner] or 0) - 1 end
    elseif owner ~= '' and not there then
      more[owner] = (more[owner] or 0) + 1
    end
    is[field] = '0\t' .. (removal == '1' and tostring(now) or '0') .. '\t' .. hash .. '\t' .. created .. '\t' .. expires .. '\t' .. rest
    todo[#todo + 1] = {i + 2, field, is[field], there and old[3] or '', removal, expires, hash, owner, there and old[1] or ''}
  end
end
for owner, n in pairs(more) do
  local has = tonumber(redis.call('HGET', owners, owner) or '0')
  if most > 0 and n > 0 and has + n > most then return {'full', owner, tostring(has)} end
end

redis.call('SET', epoch, ARGV[1], 'NX')
local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)
if last[1] then -- revisions never go back, even if their count was lost
  local id = tonumber(string.match(last[1][1], '^%d+'))
  if tonumber(redis.call('GET', revs) or '0') < id then redis.call('SET', revs, string.format('%.0f', id)) end
end

local function toggle(hash, n)
  if hash == '' then return end
  local x = redis.call('HGET', sum, 'x') or string.rep('0', 32)
  local words = {}
  for w = 1, 32, 8 do
    words[#words + 1] = bit.tohex(bit.bxor(tonumber(string.sub(x, w, w + 7), 16), tonumber(string.sub(hash, w, w + 7), 16)))
  end
  redis.call('HSET', sum, 'x', table.concat(words))
  redis.call('HINCRBY', sum, 'n', n)
end

local given = {}
for _, t in ipairs(todo) do
  local at, field, value, before, removal, expires, hash, owner, replaced = unpack(t)
  local rev = string.format('%.0f', redis.call('INCR', revs))
  value = rev .. string.sub(value, 2)
  toggle(before, -1)
  redis.call('HSET', live, field, value)
  redis.call('XADD', log, 'MAXLEN', '~', 100000, rev .. '-1', 'f', field, 'v', value)
  redis.call('ZREM', ends, field)
  redis.call('ZREM', gone, field)
  if removal == '1' then
    redis.call('ZADD', gone, now, field)
  else
    toggle(hash, 1)
    if expires ~= '0' then redis.call('ZADD', ends, expires, field) end
  end
  if owner ~= '' then
    if replaced ~= '' then redis.call('HINCRBY', owned, owner, '-' .. (given[field] or replaced)) end
    if removal ~= '1' then redis.call('HINCRBY', owned, owner, rev) end
  end
  given[field] = rev
  answer[at][1] = rev
end
for owner, n in pairs(more) do
  if n ~= 0 and redis.call('HINCRBY', owners, owner, n) <= 0 then
    redis.call('HDEL', owners, owner)
    redis.call('HDEL', owned, owner)
  end
end
return answer

-- KEYS: entries, log, rev. ARGV: the id of the change that was read last, how many to read, an id to look for, octets.
-- Returns "gone", or: how many were read, the id of the last, 1 if there are more, 1 if the id was met, rev, how many entries there
-- are, and for each entry that was told of itself and its value.
local id, count = ARGV[1], tonumber(ARGV[2])
local log = redis.call('XRANGE', KEYS[2], id, '+', 'COUNT', count + 2)
if id ~= '0-0' then
  if not log[1] or log[1][1] ~= id then return {'gone'} end
  table.remove(log, 1)
end
local n, met, octets, known, found = 0, 0, 0, {}, {}
if id == ARGV[3] then met = 1 end
for _, change in ipairs(log) do
  if n == count or octets > tonumber(ARGV[4]) then break end
  n, id = n + 1, change[1]
  if id == ARGV[3] then met = 1 end
  local entry
  for i = 1, #change[2], 2 do
    if change[2][i] == 'f' then entry = change[2][i + 1] end
  end
  if entry and not known[entry] then
    known[entry] = true
    local value = redis.call('HGET', KEYS[1], entry)
    found[#found + 1], found[#found + 2] = entry, value
    octets = octets + #entry + (value and #value or 0)
  end
end
return {n, id, n < #log and 1 or 0, met, redis.call('GET', KEYS[3]) or '0', redis.call('HLEN', KEYS[1]), found}

-- Reads rows of the live entries of a fleet. What somebody has made longer than a row can be is cut.
--
-- KEYS  live log rev epoch sum ends gone owners owned
-- ARGV  'log' or 'all', from where, at most how many, the most octets of a field and of a value
--
-- The answer to 'log' is id, field, value of each change from an id on; to 'all' where it goes on ('0' = nowhere), then field and value of
-- some rows.
local most, answer = tonumber(ARGV[4]), {}
local function cut(text) return string.sub(text, 1, most + 1) end

if ARGV[1] == 'log' then
  for _, message in ipairs(redis.call('XRANGE', KEYS[2], ARGV[2], '+', 'COUNT', ARGV[3])) do
    local id, pairs, f, v = message[1], message[2], '', ''
    for i = 1, #pairs, 2 do
      if pairs[i] == 'f' then f = pairs[i + 1] elseif pairs[i] == 'v' then v = pairs[i + 1] end
    end
    answer[#answer + 1] = id
    answer[#answer + 1] = cut(f)
    answer[#answer + 1] = cut(v)
  end
else
  local page = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
  answer[1] = page[1]
  for _, text in ipairs(page[2]) do answer[#answer + 1] = cut(text) end
end
return answer

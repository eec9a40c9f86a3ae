-- All that is kept of a key: the header, the tickets, the tombstones, and how many members the sorted sets have.
local unpack, header, tickets, graves = cmsgpack.unpack, {}, {}, {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
    local kind, token, parts = all[i]:sub(1, 1), all[i]:sub(2), unpack(all[i + 1])
    if kind == 'h' then
        header = parts
    elseif kind == 't' then
        tickets[#tickets + 1] = { token, parts }
    else
        graves[#graves + 1] = { token, parts }
    end
end
return { header, tickets, graves, redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]), redis.call('PTTL', KEYS[1]) }

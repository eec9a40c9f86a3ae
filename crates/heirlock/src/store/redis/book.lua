-- All that is kept of a key: the header, the rests, the tickets, the tombstones, how many members the sorted sets have, for how long all is kept, and
-- how many fields there are beside those.
local call, unpack, header, rests, tickets, graves, fields = redis.call, struct.unpack, {}, {}, {}, {}, {}
local all = call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
    local name, row = all[i], all[i + 1]
    fields[name] = row
    if name:sub(1, 1) == 't' then
        tickets[#tickets + 1] = { name:sub(2), row }
        fields[name] = nil
    end
end
if fields.h then
    local fence, arrivals, due, _, _, alone_due, alone, counts, rings = unpack('<ddddddc16c16c4', fields.h)
    local holders, queued, readers, slots = unpack('<I4I4I4I4', counts)
    header = { fence, arrivals, holders, queued, readers, slots, due, alone_due, alone }
    for at = 85, #fields.h, 40 do
        rests[#rests + 1] = { unpack('<dddc16', fields.h, at) }
    end
    fields.h = nil
    for at, ring in ipairs({ 's', 'u' }) do
        local from, count = unpack('BB', rings, 2 * at - 1)
        for number = from, from + count - 1 do
            local name = ring .. number % 64
            local token, till = unpack('<c16d', fields[name])
            local reason, was = unpack('BB', fields['g' .. token])
            graves[#graves + 1] = { token, reason, was, 2 - at, till }
            fields[name], fields['g' .. token] = nil, nil
        end
    end
end
local beside = 0
for _ in pairs(fields) do
    beside = beside + 1
end
return { header, rests, tickets, graves, call('ZCARD', KEYS[2]), call('ZCARD', KEYS[3]), call('PTTL', KEYS[1]), beside }

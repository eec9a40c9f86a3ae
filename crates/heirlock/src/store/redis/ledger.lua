-- One step of the ledger on one key: what src/lease/ledger.rs does, over three keys of one hash slot.
--
-- KEYS[1], a hash: 'h', the header; 't' and a token, a live ticket; 'g' and a token, a tombstone; 's' and 'u' and a number, whose tombstones go next.
-- KEYS[2], a sorted set: those who share or hold slots, then the queue. KEYS[3], a sorted set: when these are due, holders first. An exclusive holder
-- is in neither, but in the header.
-- ARGV: the verb, the key as its users know it, how ('' or 'all', with "ms us" before it if the time is not to be the server's), and the verb's own.
--   enter: token, number, priority, whether it may queue, the lasting part of the ticket. beat: token, number, priority, what its owner is
--   blocked on. leave: token, whether no enter may still come. evict: a fence or '', whether by force. look: nothing.
--
-- All that is kept is packed numbers; wire.rs packs and reads a ticket's, book.lua reads the others. The server makes all of this anew for each run,
-- the functions too: so what nearly all steps come to is done first, without any, and with as few commands and bytes as it can.
local K, verb, speaker = KEYS[1], ARGV[1], ARGV[4] or ''
local spread, call, pack, unpack, min, max = unpack, redis.call, struct.pack, struct.unpack, math.min, math.max

-- The header: the last fence, arrivals, a bound of what is due, when the last step was, until when the key is kept, when the exclusive holder is due,
-- its token, COUNTS, RINGS. The rests follow: a slot (-1: the whole key), the end, the span, whose it was.
local HEADER, HEADER_LENGTH, REST, REST_LENGTH = '<ddddddc16c16c4', 84, '<dddc16', 40
-- Holders, queued, whether holders are readers, slots: of a free key, and of one that is held alone and that nobody waits for.
local COUNTS, FREE, HELD = '<I4I4I4I4', '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0', '\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
-- Of the tombstones that are settled, and of the others: the number of the oldest, and how many there are.
local RINGS, MOST_GRAVES, GRAVE_MS = 'BBBB', 64, 60000
-- A tombstone: why it ended, and what it was, of one that was held and given back.
local GRAVE, GIVEN_BACK = 'BB', '\0\0'
-- A ticket: what changes; what lasts, as its owner gave it; the owner; what it is blocked on. A span that is not there is -1.
local CHANGING, CHANGING_LENGTH, TICKET, TICKET_LENGTH = '<dddddddddd', 80, '<dddddddddddddddddc16I4', 156
-- Where some of its fields begin.
local STATE_AT, HOLD_AT_LEAST_AT = 9, 129
local IS_QUEUED, IS_GRANTED, IS_HELD, EXCLUSIVE, SHARED, IN_SLOT = 0, 1, 2, 0, 1, 2
-- The exclusive holder of a key that has none. Larger than any instant or span, and exact.
local NOBODY, NEVER = FREE, 9007199254740991
-- What is not used for so long is forgotten, fence and all: the server's clock is beyond it then.
local FORGET_MS = 86400000
-- The lowest score of the queue; as text, for the server would make it that.
local FIRST_WAITER = '-4294967296'

local now, wall, is_time_given
if ARGV[3] == '' or ARGV[3] == 'all' then
    local time = call('TIME')
    wall = time[1] * 1000000 + time[2]
    now = math.floor(wall / 1000)
else
    local ms, us = ARGV[3]:match('^(%d+) (%d+) ')
    now, wall, is_time_given = tonumber(ms), tonumber(us), true
end

local read = call('HMGET', K, 'h', 't' .. speaker, 'g' .. speaker)
local raw, packed, grave = read[1], read[2], read[3]
local fence, arrivals, due, seen, kept, alone_due, alone, counts, rings = 0, 0, NEVER, now, 0, NEVER, NOBODY, FREE, '\0\0\0\0'
if raw then
    fence, arrivals, due, seen, kept, alone_due, alone, counts, rings = unpack(HEADER, raw)
end

-- The short way. A free or new key is taken; its one exclusive holder claims or renews; it leaves and nobody waits. Nothing is due, nothing rests,
-- the key is kept for long enough, and what comes is what its owner is expected to send: then the long way would do no more than this.
local is_new = not raw and verb == 'enter' and ARGV[3]:sub(-3) ~= 'all' and call('EXISTS', KEYS[2], KEYS[3]) == 0
if is_new or raw and #raw == HEADER_LENGTH and now >= seen and now < due then
    local answer
    if verb == 'enter' then
        local mode, _, ttl, queue_life, max_hold = unpack('<ddddd', ARGV[8])
        if counts == FREE and not grave and mode == EXCLUSIVE and (is_new or now + ttl + FORGET_MS / 2 <= kept) then
            local priority = tonumber(ARGV[6])
            kept = is_new and now + ttl + FORGET_MS or kept
            fence, arrivals = max(fence + 1, wall), arrivals + 1
            alone_due = now + (max_hold >= 0 and min(ttl, max_hold) or ttl)
            call('HSET', K, 'h', pack(HEADER, fence, arrivals, min(due, now + queue_life, alone_due), now, kept, alone_due, speaker, HELD, rings),
                't' .. speaker, pack(CHANGING, tonumber(ARGV[5]), IS_HELD, priority, arrivals, now, now, alone_due, fence, 0, 0) .. ARGV[8])
            if is_new then
                call('PEXPIRE', K, kept - now)
            end
            answer = { 'H', fence, -1, alone_due - now, priority, 0 }
        end
    elseif verb == 'beat' and alone == speaker then
        local seq, state, _, arrival, entered, granted, _, own, _, revoked, _, _, ttl, _, max_hold, _, _, _, owner = unpack(TICKET, packed)
        local new_seq, priority, till = tonumber(ARGV[5]), tonumber(ARGV[6]), max_hold >= 0 and granted + max_hold or NEVER
        if new_seq > seq and revoked == 0 and (state == IS_HELD or now < till) and now + ttl + FORGET_MS / 2 <= kept then
            -- The first write may not be one that could need memory: see below.
            call('HDEL', K, '')
            alone_due = min(now + ttl, till)
            call('HSET', K, 'h', pack(HEADER, fence, arrivals, min(due, alone_due), now, kept, alone_due, speaker, counts, rings),
                't' .. speaker, pack(CHANGING, new_seq, IS_HELD, priority, arrival, entered, granted, alone_due, own, 0, 0)
                    .. packed:sub(CHANGING_LENGTH + 1, TICKET_LENGTH + owner) .. ARGV[7])
            local head = counts ~= HELD and call('ZRANGEBYSCORE', KEYS[2], FIRST_WAITER, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
            answer = { 'H', own, -1, alone_due - now, head and head[2] and max(priority, -head[2]) or priority, 0 }
        end
    elseif verb == 'leave' and alone == speaker and counts == HELD and ARGV[5] == '1' and now + FORGET_MS / 2 <= kept then
        local from, settled, _, unsettled = unpack(RINGS, rings)
        local is_full = settled + unsettled >= MOST_GRAVES
        if unpack('<d', packed, STATE_AT) == IS_HELD and unpack('<d', packed, HOLD_AT_LEAST_AT) < 0 and (settled > 0 or not is_full) then
            if is_full then
                call('HDEL', K, 't' .. speaker, 'g' .. call('HGET', K, 's' .. from):sub(1, 16), 's' .. from)
                from, settled = (from + 1) % MOST_GRAVES, settled - 1
            else
                call('HDEL', K, 't' .. speaker)
            end
            rings = pack('BB', from, settled + 1) .. rings:sub(3)
            call('HSET', K, 'h', pack(HEADER, fence, arrivals, min(due, now + GRAVE_MS), now, kept, NEVER, NOBODY, FREE, rings),
                's' .. (from + settled) % MOST_GRAVES, pack('<c16d', speaker, now + GRAVE_MS), 'g' .. speaker, GIVEN_BACK)
            answer = { 0 }
        end
    end
    if answer then
        return is_time_given and { answer, {}, 1 } or answer
    end
end

-- The long way.

-- A server without memory refuses a script whose first write could take some. Who comes is refused; who renews or leaves is not.
if verb ~= 'enter' then
    call('HDEL', K, '')
end
local Q, D = KEYS[2], KEYS[3]
if not raw and call('EXISTS', Q, D) > 0 then
    -- Forgotten, or taken away: what is left of it is nobody's.
    call('DEL', Q, D)
end

local RELEASED, WITHDRAWN, EXPIRED, CAPPED, EVICTED, REFUSED, UNKNOWN = 0, 1, 2, 3, 4, 5, 6
local WAS_HELD, WAS_GRANTED, WAS_QUEUED, WAS_GONE = 0, 1, 2, 3
-- The score of those who share or hold slots; where those who wait begin among what is due.
local SHARERS, QUEUED_DUE = '-1099511627776', 1125899906842624

local holders, queued, readers, slots = unpack(COUNTS, counts)
local settled, unsettled = { name = 's' }, { name = 'u' }
settled.from, settled.count, unsettled.from, unsettled.count = unpack(RINGS, rings)
local rests = {}
for at = HEADER_LENGTH + 1, raw and #raw or 0, REST_LENGTH do
    local slot, till, span, token = unpack(REST, raw, at)
    rests[#rests + 1] = { slot, till, span, token }
end
-- Tickets as they were read, with where they stand in the sorted sets; those in `changed` are written when the step is over.
local rows, changed = {}, {}
-- Of the keys, which must be told until when they are kept; and how many tickets the sorted sets have.
local grown, members = {}, holders + queued - (alone ~= NOBODY and 1 or 0)
-- The queue's head and the highest priority of all who wait, unless that must be read again; and that priority before the queue changed, if it has.
local head, top, is_head_known, has_queue_changed, top_before
-- What is told; who was granted in this step; and whether the verb is done.
local told, fresh, acted = {}, {}, false
-- Once more: what a function uses is looked for from the newest local on, so those that most of them use are the newest.
local call, pack, unpack, min, max, now, K, speaker = call, pack, unpack, min, max, now, K, speaker

local function look_at_head()
    if not is_head_known then
        is_head_known, head, top = true, nil, nil
        if queued > 0 then
            local found = call('ZRANGEBYSCORE', Q, FIRST_WAITER, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
            head, top = found[1]:sub(9), -found[2]
        end
    end
end

-- Before a ticket comes into the queue, moves in it or goes.
local function change_queue(row, is_new)
    if not has_queue_changed then
        look_at_head()
        has_queue_changed, top_before = true, top
    end
    if not is_new then
        is_head_known = is_head_known and head ~= row.token and row.t.priority < top
    elseif is_head_known and (not head or row.t.priority > top) then
        -- Behind its equals, it is the first.
        head, top = row.token, row.t.priority
    end
end

-- The score and the member in the one sorted set, and the score in the other; an exclusive holder has none.
local function place(row)
    local t = row.t
    if t.state == IS_QUEUED then
        return -t.priority, pack('>I8', t.arrival) .. row.token, t.due + QUEUED_DUE
    elseif t.mode ~= EXCLUSIVE then
        return SHARERS, row.token, t.due
    end
end

local function read_ticket(token, found)
    local t, length = {}, nil
    t.seq, t.state, t.priority, t.arrival, t.entered, t.granted, t.due, t.fence, t.slot, t.revoked, t.mode, t.slots, t.ttl, t.queue_life, t.max_hold,
        t.lock_delay, t.hold_at_least, t.session, length = unpack(TICKET, found)
    return { token = token, t = t, lasting = found:sub(CHANGING_LENGTH + 1), length = TICKET_LENGTH - CHANGING_LENGTH + length }
end

local function ticket(token)
    local row = rows[token]
    if row == nil then
        local found = packed
        if token ~= speaker then
            found = call('HGET', K, 't' .. token)
        end
        row = found and read_ticket(token, found)
        if row then
            row.score, row.member, row.till = place(row)
        end
        rows[token] = row
    end
    return row
end

local function put(row)
    local score, member, till = place(row)
    local was_queued, is_queued = row.member and row.score ~= SHARERS, member and score ~= SHARERS
    if (was_queued or is_queued) and (score ~= row.score or member ~= row.member) then
        change_queue(row, not was_queued)
    end
    if member then
        if not row.member then
            -- A set that was empty was not there, and is to be told until when it is kept.
            grown[Q], grown[D] = grown[Q] or members == 0, grown[D] or members == 0
            members = members + 1
        end
        if score ~= row.score or member ~= row.member then
            call('ZADD', Q, score, member)
            if row.member and row.member ~= member then
                -- After it, so that the set is never empty in between.
                call('ZREM', Q, row.member)
            end
        end
        if till ~= row.till then
            call('ZADD', D, till, row.token)
        end
    else
        if row.member then
            call('ZREM', Q, row.member)
            call('ZREM', D, row.token)
            members = members - 1
        end
        alone, alone_due = row.token, row.t.due
    end
    row.score, row.member, row.till = score, member, till
    rows[row.token], changed[row.token] = row, true
    due = min(due, row.t.due)
end

local function all_holders()
    if alone ~= NOBODY then
        return { ticket(alone) }
    end
    local found = {}
    if holders > 0 then
        for at, token in ipairs(call('ZRANGEBYSCORE', Q, SHARERS, SHARERS)) do
            found[at] = ticket(token)
        end
    end
    return found
end

-- The earliest instant of holders, or of those who wait; NEVER if there are none.
local function first_due(of_queue)
    local found = {}
    if of_queue and queued > 0 then
        found = call('ZRANGEBYSCORE', D, QUEUED_DUE, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
    elseif not of_queue and alone ~= NOBODY then
        return alone_due
    elseif not of_queue and holders > 0 then
        found = call('ZRANGEBYSCORE', D, '0', QUEUED_DUE, 'WITHSCORES', 'LIMIT', '0', '1')
    end
    return found[2] and found[2] - (of_queue and QUEUED_DUE or 0) or NEVER
end

-- Tombstones stand in two rings, of settled ones and of others, in the order in which they go.

-- The token of a ring's oldest, and when it goes.
local function oldest(ring)
    if ring.count > 0 then
        return unpack('<c16d', call('HGET', K, ring.name .. ring.from))
    end
end

local function unbury(ring, token)
    call('HDEL', K, ring.name .. ring.from, 'g' .. token)
    ring.from, ring.count = (ring.from + 1) % MOST_GRAVES, ring.count - 1
    if token == speaker then
        grave = false
    end
end

local function bury(token, reason, was, is_settled)
    if settled.count + unsettled.count >= MOST_GRAVES then
        local ring = settled.count > 0 and settled or unsettled
        unbury(ring, (oldest(ring)))
    end
    local ring, why = is_settled and settled or unsettled, pack(GRAVE, reason, was)
    call('HSET', K, ring.name .. (ring.from + ring.count) % MOST_GRAVES, pack('<c16d', token, now + GRAVE_MS), 'g' .. token, why)
    ring.count = ring.count + 1
    due = min(due, now + GRAVE_MS)
    if token == speaker then
        grave = why
    end
end

-- A sorted set was evicted, or taken away, and the hash was not: it has all that they say.
if members > 0 and call('EXISTS', Q, D) < 2 then
    local all = call('HGETALL', K)
    for at = 1, #all, 2 do
        if all[at]:sub(1, 1) == 't' then
            local row = read_ticket(all[at]:sub(2), all[at + 1])
            local score, member, till = place(row)
            if member then
                call('ZADD', Q, score, member)
                call('ZADD', D, till, row.token)
            end
        end
    end
    grown[Q], grown[D] = true, true
end

-- Who speaks is answered, and not told.
local function tell(row, news)
    if row.token ~= speaker then
        told[#told + 1] = { row.t.session, news, row.token }
    end
end

-- What ends.

local function finish(row, reason, was, is_settled)
    if row.t.state == IS_QUEUED then
        change_queue(row, false)
        queued = queued - 1
    else
        holders = holders - 1
    end
    if row.member then
        call('ZREM', Q, row.member)
        call('ZREM', D, row.token)
        members = members - 1
    else
        alone, alone_due = NOBODY, NEVER
    end
    rows[row.token], changed[row.token] = false, true
    bury(row.token, reason, was, is_settled)
end

local function cap(t)
    return t.max_hold >= 0 and t.granted + t.max_hold or NEVER
end

local function rest(row, till, span)
    if till <= now then
        return
    end
    local slot = row.t.mode == IN_SLOT and row.t.slot or -1
    for _, other in ipairs(rests) do
        if other[1] == slot then
            other[2] = max(other[2], till)
            return
        end
    end
    rests[#rests + 1] = { slot, till, span, row.token }
end

-- What begins.

-- Where a ticket of this mode could stand now: nothing, 'alone', 'beside', or a slot.
local function room(mode, slots)
    if #rests == 0 and holders == 0 and mode ~= IN_SLOT then
        return 'alone'
    end
    local taken = {}
    for _, other in ipairs(rests) do
        if other[1] < 0 then
            return nil
        end
        taken[other[1]] = true
    end
    if mode == EXCLUSIVE then
        return nil
    elseif mode == SHARED then
        return #rests == 0 and readers == 1 and 'beside' or nil
    end
    for _, row in ipairs(all_holders()) do
        taken[row.t.slot] = true
    end
    for slot = 0, slots - 1 do
        if not taken[slot] then
            return slot
        end
    end
end

-- Its owner knows that it holds. A revoked ticket is not renewed.
local function claim(t)
    t.state = IS_HELD
    if t.revoked == 0 then
        t.due = min(now + t.ttl, cap(t))
    end
end

-- A ticket that is in the queue or, if `queued` counts it all the same, was never there.
local function grant(row, where)
    local t = row.t
    -- Readers that join share the fence of the generation, which is the last one minted.
    if where ~= 'beside' then
        fence = max(fence + 1, wall)
    end
    t.fence, t.state, t.granted = fence, IS_GRANTED, now
    if t.mode == IN_SLOT then
        t.slot = where
    end
    if acted and row.token == speaker then
        claim(t)
    end
    tell(row, 'granted')
    fresh[row.token] = true
    put(row)
    readers = t.mode == SHARED and 1 or 0
    queued, holders = queued - 1, holders + 1
end

local function promote()
    -- Beside an exclusive holder there is no room, whoever waits.
    while queued > 0 and alone == NOBODY do
        look_at_head()
        local row = ticket(head)
        local where = room(row.t.mode, row.t.slots)
        if not where then
            return
        end
        grant(row, where)
    end
end

local function pack_ticket(row)
    local t = row.t
    return pack(CHANGING, t.seq, t.state, t.priority, t.arrival, t.entered, t.granted, t.due, t.fence, t.slot, t.revoked) .. row.lasting
end

-- A step.

if now < seen then
    -- The server's clock was set back: all stands as it stood at the last step.
    local function earlier(instant)
        return max(instant - (seen - now), 0)
    end
    local bound = due == NEVER and NEVER or earlier(due)
    for _, token in ipairs(call('ZRANGEBYSCORE', D, '0', '+inf')) do
        ticket(token)
    end
    if alone ~= NOBODY then
        ticket(alone)
    end
    for _, row in pairs(rows) do
        local t = row.t
        t.entered, t.due, t.granted = earlier(t.entered), earlier(t.due), t.granted > 0 and earlier(t.granted) or 0
        put(row)
    end
    due = bound
    for _, ring in ipairs({ settled, unsettled }) do
        for number = ring.from, ring.from + ring.count - 1 do
            local name = ring.name .. number % MOST_GRAVES
            local token, till = unpack('<c16d', call('HGET', K, name))
            call('HSET', K, name, pack('<c16d', token, earlier(till)))
        end
    end
    for _, other in ipairs(rests) do
        other[2] = earlier(other[2])
    end
end

if #rests > 0 then
    local standing = {}
    for _, other in ipairs(rests) do
        if other[2] > now then
            standing[#standing + 1] = other
        end
    end
    rests = standing
end
if now >= due then
    for _, ring in ipairs({ settled, unsettled }) do
        local token, till = oldest(ring)
        while token and till <= now do
            unbury(ring, token)
            token, till = oldest(ring)
        end
    end
    local over = {}
    if members > 0 then
        for _, from in ipairs({ 0, QUEUED_DUE }) do
            for _, token in ipairs(call('ZRANGEBYSCORE', D, from, from + now)) do
                over[#over + 1] = ticket(token)
            end
        end
    end
    if alone_due <= now then
        over[#over + 1] = ticket(alone)
    end
    table.sort(over, function(a, b)
        if a.t.due ~= b.t.due then
            return a.t.due < b.t.due
        end
        return a.token < b.token
    end)
    for _, row in ipairs(over) do
        local t = row.t
        local is_capped = t.state == IS_HELD and t.max_hold >= 0 and t.due == cap(t)
        finish(row, is_capped and CAPPED or EXPIRED, WAS_GONE, false)
        if t.state == IS_HELD and t.lock_delay >= 0 then
            rest(row, t.due + t.lock_delay, t.lock_delay)
        end
    end
    local _, first_settled = oldest(settled)
    local _, first_unsettled = oldest(unsettled)
    due = min(first_due(false), first_due(true), first_settled or NEVER, first_unsettled or NEVER)
end
promote()

local answer
if verb == 'evict' then
    local of, is_forced, met = ARGV[4], ARGV[5] == '1', 0
    for _, row in ipairs(all_holders()) do
        if of == '' or tonumber(of) == row.t.fence then
            met = met + 1
            if is_forced or row.t.state == IS_GRANTED then
                finish(row, EVICTED, WAS_GONE, false)
                tell(row, 'revoked')
            elseif row.t.revoked == 0 then
                row.t.revoked = 1
                put(row)
                tell(row, 'revoked')
            end
        end
    end
    if is_forced and tonumber(of) == 0 then
        met, rests = met + #rests, {}
    end
    answer = { met }
elseif verb ~= 'look' then
    local row, reason, was = holders + queued > 0 and ticket(speaker), nil, nil
    if not row and grave then
        reason, was = unpack(GRAVE, grave)
    end
    if verb == 'leave' then
        local is_settled = ARGV[5] == '1'
        if row then
            local t = row.t
            local is_held = t.state == IS_HELD
            was = is_held and WAS_HELD or t.state == IS_GRANTED and WAS_GRANTED or WAS_QUEUED
            finish(row, is_held and RELEASED or WITHDRAWN, was, is_settled)
            if is_held and t.hold_at_least >= 0 then
                rest(row, t.granted + t.hold_at_least, t.hold_at_least)
            end
        elseif not reason then
            bury(speaker, WITHDRAWN, WAS_GONE, is_settled)
        end
        answer = { (row or reason == RELEASED or reason == WITHDRAWN) and was or WAS_GONE }
    elseif row then
        -- A newer request renews what is held, claims what is granted, keeps alive what is queued; an older one does nothing.
        local t, seq = row.t, tonumber(ARGV[5])
        if seq > t.seq and t.state == IS_GRANTED and now >= cap(t) then
            -- Its longest hold was over before its owner claimed it.
            finish(row, CAPPED, WAS_GONE, false)
        elseif seq > t.seq then
            t.seq, t.priority = seq, tonumber(ARGV[6])
            if verb == 'beat' then
                row.lasting = row.lasting:sub(1, row.length) .. ARGV[7]
            end
            if t.state == IS_QUEUED then
                t.due = now + t.queue_life
            else
                claim(t)
            end
            put(row)
        end
    elseif verb == 'enter' and reason then
        answer = reason == REFUSED and { 'B' } or { 'G', reason }
    elseif verb == 'enter' then
        -- It was never seen.
        row = read_ticket(speaker, pack(CHANGING, tonumber(ARGV[5]), IS_QUEUED, tonumber(ARGV[6]), arrivals + 1, now, 0, 0, 0, 0, 0) .. ARGV[8])
        local t = row.t
        local where = queued == 0 and room(t.mode, t.slots)
        if holders + queued > 0 and slots ~= t.slots then
            answer = { 'M', slots }
        elseif ARGV[7] ~= '1' and not where then
            bury(speaker, REFUSED, WAS_GONE, false)
            answer = { 'B' }
        else
            slots, arrivals, t.due = t.slots, arrivals + 1, now + t.queue_life
            due = min(due, t.due)
            if where then
                -- Nobody before it: it is granted at once, without ever standing in the queue.
                acted, queued = true, queued + 1
                grant(row, where)
            else
                put(row)
                queued = queued + 1
            end
        end
    end
end

acted = true
promote()
-- What holders inherit changes with the queue alone; and what was granted in this step inherits nothing new.
if has_queue_changed and holders > 0 and not fresh[alone] then
    look_at_head()
    if top_before ~= top then
        for _, row in ipairs(all_holders()) do
            local own = row.t.priority
            local before, after = max(own, top_before or own), max(own, top or own)
            if after ~= before and not fresh[row.token] then
                tell(row, after > before and 'boosted' or 'lowered')
            end
        end
    end
end

if verb == 'look' then
    local till = -1
    for _, other in ipairs(rests) do
        if other[1] < 0 then
            till = max(till, other[2])
        end
    end
    answer = { now, fence, till, #rests }
    for _, row in ipairs(all_holders()) do
        answer[#answer + 1] = pack_ticket(row)
    end
    for _, member in ipairs(call('ZRANGEBYSCORE', Q, FIRST_WAITER, '+inf')) do
        answer[#answer + 1] = pack_ticket(ticket(member:sub(9)))
    end
elseif not answer then
    local row = ticket(speaker)
    local t = row and row.t
    if not row then
        answer = { 'G', grave and (unpack(GRAVE, grave)) or UNKNOWN }
    elseif t.state == IS_HELD then
        look_at_head()
        answer = { 'H', t.fence, t.mode == IN_SLOT and t.slot or -1, max(t.due - now, 0), max(t.priority, top or t.priority), t.revoked }
    elseif t.state == IS_GRANTED then
        answer = { 'Q', 1 }
    else
        -- It looks again when a holder is due or a rest over; the first four at least each second.
        local near, next_look = queued <= 4, math.floor(t.queue_life / 3)
        if not near then
            for _, member in ipairs(call('ZRANGEBYSCORE', Q, FIRST_WAITER, '+inf', 'LIMIT', '0', '4')) do
                near = near or member == row.member
            end
        end
        for _, other in ipairs(rests) do
            next_look = min(next_look, other[2] - now)
        end
        answer = { 'Q', max(min(next_look, near and 1000 or NEVER, first_due(false) - now), 1) }
    end
end

-- Kept, and told.

if raw or holders + queued + settled.count + unsettled.count + #rests > 0 then
    local write, longest = { 'HSET', K }, 0
    if not raw and ARGV[3]:sub(-3) == 'all' then
        -- In a cluster all three keys exist as long as one does: of a slot that moves elsewhere, some without the others are refused (TRYAGAIN).
        call('ZADD', Q, '-inf', '')
        call('ZADD', D, '-inf', '')
    end
    for token in pairs(changed) do
        local row = rows[token]
        if row then
            write[#write + 1] = 't' .. token
            write[#write + 1] = pack_ticket(row)
            longest = max(longest, row.t.ttl)
            if #write >= 100 then
                call(spread(write))
                write = { 'HSET', K }
            end
        else
            call('HDEL', K, 't' .. token)
        end
    end
    local header = ''
    for _, other in ipairs(rests) do
        longest = max(longest, other[2] - now)
        header = header .. pack(REST, other[1], other[2], other[3], other[4])
    end
    -- Rarely: the key stays for a day and more after its last use.
    if kept < now + longest + FORGET_MS / 2 then
        kept = now + longest + FORGET_MS
        local has_sets = members > 0 or ARGV[3]:sub(-3) == 'all'
        grown[K], grown[Q], grown[D] = true, has_sets, has_sets
    end
    counts, rings = pack(COUNTS, holders, queued, readers, slots), pack(RINGS, settled.from, settled.count, unsettled.from, unsettled.count)
    write[#write + 1] = 'h'
    write[#write + 1] = pack(HEADER, fence, arrivals, due, now, kept, alone_due, alone, counts, rings) .. header
    call(spread(write))
    for set, has_grown in pairs(grown) do
        if has_grown then
            call('PEXPIRE', set, kept - now)
        end
    end
end
for _, word in ipairs(told) do
    call('PUBLISH', 'heirlock:' .. word[1], word[2] .. ' ' .. ARGV[2])
end
-- Whoever sets the time wants to see all.
return is_time_given and { answer, told, 0 } or answer

-- One step of the ledger on one key: what src/lease/ledger.rs does, over three keys of one hash slot.
--
-- KEYS[1], a hash: 'h', the header; 't' and a token, a live ticket; 'g' and a token, a tombstone.
-- KEYS[2], a sorted set, in this order: the settled tombstones, the others, those who share or hold slots, the queue.
-- KEYS[3], a sorted set: when tickets are due, those of holders first. An exclusive holder is in the header alone.
-- ARGV: the verb, the key as its users know it, how ('' or 'all', with "ms us" before it if the time is not to be the server's), and the verb's own.
local K, Q, D = KEYS[1], KEYS[2], KEYS[3]
local verb, key = ARGV[1], ARGV[2]
local spread = unpack
local call, pack, unpack, floor, min, max = redis.call, cmsgpack.pack, cmsgpack.unpack, math.floor, math.min, math.max
-- Larger than any instant or span, and exact.
local NEVER = 9007199254740991
-- Where the parts of the two sorted sets begin.
local SETTLED, UNSETTLED, SHARERS, FIRST_WAITER, QUEUED_DUE = -4503599627370496, -2251799813685248, -1099511627776, -4294967296, 1125899906842624
local TOMBSTONE_MS, MAX_TOMBSTONES, NEAR_LOOKERS, NEAR_LOOK_MS = 60000, 64, 4, 1000
-- What is not used for so long is forgotten, fence and all: the server's clock is beyond it then.
local FORGET_MS = 86400000

-- The header's parts. A rest is a slot (-1 for the whole key), its end, its span, and whose it was.
local FENCE, ARRIVALS, HOLDERS, QUEUED, GRAVES, READERS, SLOTS, DUE, SEEN, RESTS, ALONE, KEPT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
-- A ticket's parts. A span that is not there is -1.
local T = { SESSION = 1, SEQ = 2, STATE = 3, PRIORITY = 4, ARRIVAL = 5, MODE = 6, SLOTS = 7, TTL = 8, QUEUE_LIFE = 9, MAX_HOLD = 10, LOCK_DELAY = 11,
    HOLD_AT_LEAST = 12, ENTERED = 13, GRANTED = 14, DUE = 15, FENCE = 16, SLOT = 17, REVOKED = 18, OWNER = 19, BLOCKED = 20 }
local IS_QUEUED, IS_GRANTED, IS_HELD = 0, 1, 2
local EXCLUSIVE, SHARED, SLOT = 0, 1, 2
-- A tombstone's parts, and the words in it.
local REASON, WAS, IS_SETTLED, G_DUE = 1, 2, 3, 4
local RELEASED, WITHDRAWN, EXPIRED, MAX_HOLD, EVICTED, BUSY, UNKNOWN = 0, 1, 2, 3, 4, 5, 6
local WAS_HELD, WAS_GRANTED, WAS_QUEUED, WAS_GONE = 0, 1, 2, 3

local now, wall
local given_ms, given_us = ARGV[3]:match('^(%d+) (%d+)')
if given_ms then
    now, wall = tonumber(given_ms), tonumber(given_us)
else
    local time = call('TIME')
    wall = time[1] * 1000000 + time[2]
    now = floor(wall / 1000)
end

-- A server without memory refuses a script whose first write could take some. Who comes is refused; who renews or leaves is not.
if verb ~= 'enter' then
    call('HDEL', K, '')
end
local raw = call('HGET', K, 'h')
if not raw and call('EXISTS', Q, D) > 0 then
    -- Forgotten, or taken away: what is left of it is nobody's.
    call('DEL', Q, D)
end
local h = raw and unpack(raw) or { 0, 0, 0, 0, 0, 0, 0, NEVER, now, {}, '', 0 }

-- The bound below a score; Lua's own text of it would not be exact.
local function below(score)
    return string.format('(%.0f', score)
end

-- What is added to a sorted set makes it stay for as long as the rest of the key, at least.
local grown = {}
local function add(set, score, member)
    call('ZADD', set, score, member)
    grown[set] = true
end

-- Rows: tickets as they were read, with where they stand in the sorted sets; written when the step is over.
local rows, changed = {}, {}

local function place(row)
    local t = row.t
    if t[T.STATE] == IS_QUEUED then
        return -t[T.PRIORITY], string.format('%016x', t[T.ARRIVAL]) .. row.token, t[T.DUE] + QUEUED_DUE
    elseif t[T.MODE] == EXCLUSIVE then
        return nil, nil, nil
    end
    return SHARERS, row.token, t[T.DUE]
end

local function ticket(token)
    local row = rows[token]
    if row == nil then
        local packed = call('HGET', K, 't' .. token)
        if packed then
            row = { token = token, t = unpack(packed) }
            row.score, row.member, row.due = place(row)
        else
            row = false
        end
        rows[token] = row
    end
    return row
end

local function put(row)
    local score, member, due = place(row)
    if row.member and row.member ~= member then
        call('ZREM', Q, row.member)
    end
    if member and (row.member ~= member or row.score ~= score) then
        add(Q, score, member)
    end
    if not due and row.due then
        call('ZREM', D, row.token)
    elseif due and due ~= row.due then
        add(D, due, row.token)
    end
    if not member then
        h[ALONE] = row.token
    end
    row.score, row.member, row.due = score, member, due
    rows[row.token] = row
    changed[row.token] = true
    h[DUE] = min(h[DUE], row.t[T.DUE])
end

local function remove(row)
    if row.member then
        call('ZREM', Q, row.member)
        call('ZREM', D, row.token)
    elseif h[ALONE] == row.token then
        h[ALONE] = ''
    end
    rows[row.token] = false
    changed[row.token] = true
end

local function queue(most)
    local found = {}
    if h[QUEUED] > 0 then
        for i, member in ipairs(call('ZRANGEBYSCORE', Q, FIRST_WAITER, '+inf', 'LIMIT', 0, most)) do
            found[i] = ticket(member:sub(17))
        end
    end
    return found
end

local function holders()
    if h[ALONE] ~= '' then
        return { ticket(h[ALONE]) }
    end
    local found = {}
    if h[HOLDERS] > 0 then
        for i, member in ipairs(call('ZRANGEBYSCORE', Q, SHARERS, SHARERS)) do
            found[i] = ticket(member)
        end
    end
    return found
end

-- The earliest instant of a part of a sorted set; none if it is empty.
local function first(set, from, to)
    local found = call('ZRANGEBYSCORE', set, from, to, 'WITHSCORES', 'LIMIT', 0, 1)
    return found[2] and found[2] - from
end

local function holders_due()
    if h[ALONE] ~= '' then
        return ticket(h[ALONE]).t[T.DUE]
    end
    return h[HOLDERS] > 0 and first(D, 0, below(QUEUED_DUE)) or nil
end

local function grave_score(grave)
    return (grave[IS_SETTLED] == 1 and SETTLED or UNSETTLED) + grave[G_DUE]
end

local function grave_of(token)
    local packed = h[GRAVES] > 0 and call('HGET', K, 'g' .. token)
    return packed and unpack(packed)
end

local function unbury(token)
    call('HDEL', K, 'g' .. token)
    call('ZREM', Q, 'g' .. token)
    h[GRAVES] = h[GRAVES] - 1
end

local function bury(token, reason, was, settled)
    if h[GRAVES] >= MAX_TOMBSTONES then
        -- Settled ones first, and of these the oldest.
        local oldest = call('ZRANGEBYSCORE', Q, SETTLED, below(SHARERS), 'LIMIT', 0, 1)[1]
        unbury(oldest:sub(2))
    end
    local grave = { reason, was, settled and 1 or 0, now + TOMBSTONE_MS }
    call('HSET', K, 'g' .. token, pack(grave))
    add(Q, grave_score(grave), 'g' .. token)
    h[GRAVES] = h[GRAVES] + 1
    h[DUE] = min(h[DUE], grave[G_DUE])
end

-- What is told, and to whom not.
local speaker, acted, fresh, told = nil, false, {}, {}

local function tell(row, news)
    if row.token ~= speaker then
        told[#told + 1] = { row.t[T.SESSION], news, row.token }
    end
end

-- What ends.

local function finish(row, reason, was, settled)
    remove(row)
    if row.t[T.STATE] == IS_QUEUED then
        h[QUEUED] = h[QUEUED] - 1
    else
        h[HOLDERS] = h[HOLDERS] - 1
    end
    bury(row.token, reason, was, settled)
end

local function cap(t)
    return t[T.MAX_HOLD] >= 0 and t[T.GRANTED] + t[T.MAX_HOLD] or NEVER
end

local function rest(row, till, span)
    local t = row.t
    if till <= now then
        return
    end
    local slot = t[T.MODE] == SLOT and t[T.SLOT] or -1
    for _, other in ipairs(h[RESTS]) do
        if other[1] == slot then
            other[2] = max(other[2], till)
            return
        end
    end
    table.insert(h[RESTS], { slot, till, span, row.token })
end

local function expire(row)
    local t = row.t
    local capped = t[T.STATE] == IS_HELD and t[T.MAX_HOLD] >= 0 and t[T.DUE] == cap(t)
    finish(row, capped and MAX_HOLD or EXPIRED, WAS_GONE, false)
    if t[T.STATE] == IS_HELD and t[T.LOCK_DELAY] >= 0 then
        rest(row, t[T.DUE] + t[T.LOCK_DELAY], t[T.LOCK_DELAY])
    end
end

local function drop_rests()
    if #h[RESTS] > 0 then
        local kept = {}
        for _, other in ipairs(h[RESTS]) do
            if other[2] > now then
                kept[#kept + 1] = other
            end
        end
        h[RESTS] = kept
    end
end

local function purge()
    drop_rests()
    if now < h[DUE] then
        return
    end
    if h[GRAVES] > 0 then
        for _, from in ipairs({ SETTLED, UNSETTLED }) do
            for _, member in ipairs(call('ZRANGEBYSCORE', Q, from, from + now)) do
                unbury(member:sub(2))
            end
        end
    end
    local due = {}
    for _, from in ipairs({ 0, QUEUED_DUE }) do
        for _, token in ipairs(call('ZRANGEBYSCORE', D, from, from + now)) do
            due[#due + 1] = ticket(token)
        end
    end
    if h[ALONE] ~= '' and ticket(h[ALONE]).t[T.DUE] <= now then
        due[#due + 1] = ticket(h[ALONE])
    end
    table.sort(due, function(a, b)
        if a.t[T.DUE] ~= b.t[T.DUE] then
            return a.t[T.DUE] < b.t[T.DUE]
        end
        return a.token < b.token
    end)
    for _, row in ipairs(due) do
        expire(row)
    end
    local next = holders_due() or NEVER
    next = min(next, h[QUEUED] > 0 and first(D, QUEUED_DUE, '+inf') or NEVER)
    if h[GRAVES] > 0 then
        next = min(next, first(Q, SETTLED, below(UNSETTLED)) or NEVER, first(Q, UNSETTLED, below(SHARERS)) or NEVER)
    end
    h[DUE] = next
end

-- What begins.

-- Where a ticket of this mode could stand now: nothing, 'alone', 'beside', or a slot.
local function room(mode, slots)
    local free = h[HOLDERS] == 0
    if #h[RESTS] == 0 and free and mode ~= SLOT then
        return 'alone'
    end
    local taken = {}
    for _, other in ipairs(h[RESTS]) do
        if other[1] < 0 then
            return nil
        end
        taken[other[1]] = true
    end
    if mode == EXCLUSIVE then
        return nil
    elseif mode == SHARED then
        return #h[RESTS] == 0 and h[READERS] == 1 and 'beside' or nil
    end
    if not free then
        for _, row in ipairs(holders()) do
            taken[row.t[T.SLOT]] = true
        end
    end
    for slot = 0, slots - 1 do
        if not taken[slot] then
            return slot
        end
    end
end

-- Its owner knows that it holds. A revoked ticket is not renewed.
local function claim(t)
    t[T.STATE] = IS_HELD
    if t[T.REVOKED] == 0 then
        t[T.DUE] = min(now + t[T.TTL], cap(t))
    end
end

local function grant(row, where)
    local t = row.t
    -- Readers that join share the fence of the generation, which is the last one minted.
    if where ~= 'beside' then
        h[FENCE] = max(h[FENCE] + 1, wall)
    end
    t[T.FENCE] = h[FENCE]
    h[READERS] = t[T.MODE] == SHARED and 1 or 0
    h[QUEUED] = h[QUEUED] - 1
    h[HOLDERS] = h[HOLDERS] + 1
    if t[T.MODE] == SLOT then
        t[T.SLOT] = where
    end
    t[T.STATE] = IS_GRANTED
    t[T.GRANTED] = now
    if acted and row.token == speaker then
        claim(t)
    end
    tell(row, 'granted')
    fresh[row.token] = true
    put(row)
end

local function promote()
    while h[QUEUED] > 0 do
        local head = queue(1)[1]
        local where = room(head.t[T.MODE], head.t[T.SLOTS])
        if not where then
            return
        end
        grant(head, where)
    end
end

local function top()
    local head = queue(1)[1]
    return head and head.t[T.PRIORITY]
end

local function number(text)
    return text == '' and -1 or tonumber(text)
end

-- A ticket that was never seen: queues it, or answers why not.
local function admit(token)
    -- ARGV: 4 token, 5 seq, 6 priority, 7 blocked, 8 session, 9 mode, 10 slots, 11 may queue, 12.. the spans, 17 owner.
    local mode, slots, may_queue = tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11] == '1'
    if h[HOLDERS] + h[QUEUED] > 0 and h[SLOTS] ~= slots then
        return { 'M', h[SLOTS] }
    end
    if not may_queue and (h[QUEUED] > 0 or not room(mode, slots)) then
        bury(token, BUSY, WAS_GONE, false)
        return { 'B' }
    end
    h[SLOTS] = slots
    h[QUEUED] = h[QUEUED] + 1
    h[ARRIVALS] = h[ARRIVALS] + 1
    local row = { token = token, t = { ARGV[8], tonumber(ARGV[5]), IS_QUEUED, tonumber(ARGV[6]), h[ARRIVALS], mode, slots, tonumber(ARGV[12]),
        tonumber(ARGV[13]), number(ARGV[14]), number(ARGV[15]), number(ARGV[16]), now, 0, now + tonumber(ARGV[13]), 0, 0, 0, ARGV[17], '' } }
    h[DUE] = min(h[DUE], row.t[T.DUE])
    -- Nobody before it: it is granted at once, without ever standing in the queue.
    local where = h[QUEUED] == 1 and room(mode, slots)
    if where then
        acted = true
        grant(row, where)
    else
        put(row)
    end
end

-- A newer request renews what is held, claims what is granted, keeps alive what is queued; an older one does nothing.
local function refresh(row, keeps_blocked)
    local t, seq = row.t, tonumber(ARGV[5])
    if seq <= t[T.SEQ] then
        return
    end
    if t[T.STATE] == IS_GRANTED and now >= cap(t) then
        -- Its longest hold was over before its owner claimed it.
        finish(row, MAX_HOLD, WAS_GONE, false)
        return
    end
    t[T.SEQ] = seq
    t[T.PRIORITY] = tonumber(ARGV[6])
    if not keeps_blocked then
        t[T.BLOCKED] = ARGV[7]
    end
    if t[T.STATE] == IS_QUEUED then
        t[T.DUE] = now + t[T.QUEUE_LIFE]
    else
        claim(t)
    end
    put(row)
end

-- What is answered.

local function next_look(row)
    local most = floor(row.t[T.QUEUE_LIFE] / 3)
    for _, near in ipairs(queue(NEAR_LOOKERS)) do
        if near.token == row.token then
            most = min(most, NEAR_LOOK_MS)
        end
    end
    for _, other in ipairs(h[RESTS]) do
        most = min(most, other[2] - now)
    end
    most = min(most, (holders_due() or NEVER) - now)
    return max(most, 1)
end

local function standing(token)
    local row = ticket(token)
    if not row then
        local grave = grave_of(token)
        return { 'G', grave and grave[REASON] or UNKNOWN }
    end
    local t = row.t
    if t[T.STATE] == IS_HELD then
        return { 'H', t[T.FENCE], t[T.MODE] == SLOT and t[T.SLOT] or -1, max(t[T.DUE] - now, 0), max(t[T.PRIORITY], top() or t[T.PRIORITY]), t[T.REVOKED] }
    elseif t[T.STATE] == IS_GRANTED then
        return { 'Q', 1 }
    end
    return { 'Q', next_look(row) }
end

-- The server's clock was set back: all stands as it stood at the last step.
local function turn_back(by)
    local function earlier(t, part)
        t[part] = max(t[part] - by, 0)
    end
    for _, member in ipairs(call('ZRANGEBYSCORE', D, 0, '+inf')) do
        ticket(member)
    end
    if h[ALONE] ~= '' then
        ticket(h[ALONE])
    end
    for _, row in pairs(rows) do
        for _, part in ipairs({ T.ENTERED, T.DUE }) do
            earlier(row.t, part)
        end
        if row.t[T.GRANTED] > 0 then
            earlier(row.t, T.GRANTED)
        end
        put(row)
    end
    if h[GRAVES] > 0 then
        for _, member in ipairs(call('ZRANGEBYSCORE', Q, SETTLED, below(SHARERS))) do
            local grave = grave_of(member:sub(2))
            earlier(grave, G_DUE)
            call('HSET', K, member, pack(grave))
            add(Q, grave_score(grave), member)
        end
    end
    for _, other in ipairs(h[RESTS]) do
        earlier(other, 2)
    end
    h[DUE] = h[DUE] == NEVER and NEVER or max(h[DUE] - by, 0)
end

-- A step.

if raw and now < h[SEEN] then
    turn_back(h[SEEN] - now)
end
h[SEEN] = now
local top_before = top()
local answer
if verb ~= 'evict' and verb ~= 'look' then
    speaker = ARGV[4]
end
purge()
promote()

local function live_or_grave()
    local row = h[HOLDERS] + h[QUEUED] > 0 and ticket(speaker)
    return row, not row and grave_of(speaker)
end

if verb == 'enter' then
    local row, grave = live_or_grave()
    if row then
        refresh(row, true)
    elseif grave then
        answer = grave[REASON] == BUSY and { 'B' } or { 'G', grave[REASON] }
    else
        answer = admit(speaker)
    end
elseif verb == 'beat' then
    local row = live_or_grave()
    if row then
        refresh(row, false)
    end
elseif verb == 'leave' then
    local settled = ARGV[5] == '1'
    local row, grave = live_or_grave()
    if row then
        local state = row.t[T.STATE]
        local was = state == IS_HELD and WAS_HELD or state == IS_GRANTED and WAS_GRANTED or WAS_QUEUED
        finish(row, state == IS_HELD and RELEASED or WITHDRAWN, was, settled)
        if state == IS_HELD and row.t[T.HOLD_AT_LEAST] >= 0 then
            rest(row, row.t[T.GRANTED] + row.t[T.HOLD_AT_LEAST], row.t[T.HOLD_AT_LEAST])
        end
        answer = { was }
    elseif grave then
        answer = { (grave[REASON] == RELEASED or grave[REASON] == WITHDRAWN) and grave[WAS] or WAS_GONE }
    else
        bury(speaker, WITHDRAWN, WAS_GONE, settled)
        answer = { WAS_GONE }
    end
elseif verb == 'evict' then
    -- ARGV: 4 the fence or '', 5 force.
    local fence, force, met = number(ARGV[4]), ARGV[5] == '1', 0
    for _, row in ipairs(holders()) do
        if fence < 0 or fence == row.t[T.FENCE] then
            met = met + 1
            if force or row.t[T.STATE] == IS_GRANTED then
                finish(row, EVICTED, WAS_GONE, false)
                tell(row, 'revoked')
            elseif row.t[T.REVOKED] == 0 then
                row.t[T.REVOKED] = 1
                put(row)
                tell(row, 'revoked')
            end
        end
    end
    if force and fence == 0 then
        met = met + #h[RESTS]
        h[RESTS] = {}
    end
    answer = { met }
end

acted = true
promote()
local top_after = top()
if top_before ~= top_after and h[HOLDERS] > 0 then
    for _, row in ipairs(holders()) do
        if not fresh[row.token] then
            local own = row.t[T.PRIORITY]
            local before, after = max(own, top_before or own), max(own, top_after or own)
            if after ~= before then
                tell(row, after > before and 'boosted' or 'lowered')
            end
        end
    end
end

if verb == 'enter' or verb == 'beat' then
    answer = answer or standing(speaker)
elseif verb == 'look' then
    local rests = -1
    for _, other in ipairs(h[RESTS]) do
        if other[1] < 0 then
            rests = max(rests, other[2])
        end
    end
    answer = { now, h[FENCE], rests, #h[RESTS] }
    for _, row in ipairs(holders()) do
        answer[#answer + 1] = row.t
    end
    for _, row in ipairs(queue(-1)) do
        answer[#answer + 1] = row.t
    end
end

-- Kept, and told.

local is_used = h[HOLDERS] + h[QUEUED] + h[GRAVES] + #h[RESTS] > 0
if raw or is_used then
    local write, longest = {}, 0
    if not raw and ARGV[3]:find('all', 1, true) then
        -- In a cluster all three keys exist as long as one does: of a slot that moves to another node, some without the others are refused (TRYAGAIN).
        add(Q, '-inf', '')
        add(D, '-inf', '')
    end
    for token in pairs(changed) do
        local row = rows[token]
        if row then
            write[#write + 1] = 't' .. token
            write[#write + 1] = pack(row.t)
            longest = max(longest, row.t[T.TTL])
            if #write >= 100 then
                call('HSET', K, spread(write))
                write = {}
            end
        else
            call('HDEL', K, 't' .. token)
        end
    end
    for _, other in ipairs(h[RESTS]) do
        longest = max(longest, other[2] - now)
    end
    -- Rarely: the key stays for a day and more after its last use.
    if h[KEPT] < now + longest + FORGET_MS / 2 then
        h[KEPT] = now + longest + FORGET_MS
        grown[K], grown[Q], grown[D] = true, true, true
    end
    write[#write + 1] = 'h'
    write[#write + 1] = pack(h)
    call('HSET', K, spread(write))
    for set in pairs(grown) do
        call('PEXPIRE', set, h[KEPT] - now)
    end
end
for _, word in ipairs(told) do
    call('PUBLISH', 'heirlock:' .. word[1], word[2] .. ' ' .. key)
end
-- Whoever sets the time wants to see all.
return given_ms and { answer, told } or answer

-- Orders by the API, for wrk. Checks every answer; what is wrong is counted and the first of it shown, because a
-- figure made of errors is worse than none.
--
--   wrk -t 2 … http://ADDR -s orders.lua -- mode=first name=1 threads=2 accounts=10000 products=1000 tokens=FILE out=FILE
--
-- mode=first   each request is a new intent: a random account buys one of a random product. Every answer must be a new
--              201. The ids of the acknowledged orders go to out.N (N: thread).
-- mode=seed    the intents 1..keys, each of its own account, over and over: the first lap places them. Needs as many
--              threads as connections, so that an answer can be told to belong to its request. Writes number and
--              body of the first answer received to each to out.N.
-- mode=replay  the same intents at random, all finished: every answer must be a replayed 201 whose body is, byte for byte, one
--              of the first answers (in=FILE: what `seed` wrote, put together).
-- mode=compare as replay, but key by key as in `seed`: the body must be that of this key's first answer.

local HEAD = "POST /api/orders HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"

local threads = {}

function setup(thread)
    thread:set("number", #threads)
    table.insert(threads, thread)
end

-- The globals that `done` reads back.
right, replayed, wrong, first_wrong, compared = 0, 0, 0, "", 0

local mode, settings, tokens = nil, {}, {}
local firsts, met = {}, {}
local out, lap, current

function init(args)
    for _, arg in ipairs(args) do
        local name, value = arg:match("^(%w+)=(.*)$")
        settings[name] = tonumber(value) or value
    end
    mode = settings.mode
    math.randomseed(os.time() * 1000 + number)
    for token in io.lines(settings.tokens) do tokens[#tokens + 1] = token end
    if settings.out then
        out = assert(io.open(settings.out .. "." .. number, "w"))
        out:setvbuf("full", 65536)
    end
    if mode == "replay" or mode == "compare" then
        for line in io.lines(settings["in"]) do
            local n, body = line:match("^(%d+) (.*)$")
            if mode == "replay" then firsts[body] = true else firsts[tonumber(n)] = body end
        end
    end
    lap = number
end

-- Known to pgbench/lookup.sql as well.
local function repeat_key(n) return string.format("replayed-%027d", n) end

local function order(account, key, product)
    local body = string.format('{"lines":[{"sku":"sku-%05d","quantity":1}],"payment":"balance"}', product)
    return HEAD .. "Authorization: Bearer " .. tokens[account] .. "\r\nIdempotency-Key: " .. key
        .. "\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

local function again(n)
    current = n
    return order(n, repeat_key(n), (n - 1) % settings.products + 1)
end

local sent = 0

function request()
    if mode == "first" then
        sent = sent + 1
        local key = string.format("%-8s-%05d-%021d", settings.name, number, sent):gsub(" ", "_")
        return order(math.random(settings.accounts), key, math.random(settings.products))
    elseif mode == "replay" then
        return again(math.random(settings.keys))
    end
    local n = lap + 1
    lap = lap + settings.threads
    if lap >= settings.keys then lap = number end
    return again(n)
end

local function is_right(status, is_replay, body)
    if status ~= 201 then return false end
    if mode == "first" then return not is_replay and body:find('"status":"paid"', 1, true) ~= nil end
    if mode == "seed" then return true end
    if mode == "replay" then return is_replay and firsts[body] == true end
    return is_replay and firsts[current] == body
end

function response(status, headers, body)
    local is_replay = (headers["idempotent-replayed"] or headers["Idempotent-Replayed"]) == "true"
    if not is_right(status, is_replay, body) then
        wrong = wrong + 1
        if first_wrong == "" then
            first_wrong = string.format("%d, replayed: %s, %s", status, tostring(is_replay), body:sub(1, 300))
        end
        return
    end
    right = right + 1
    if is_replay then replayed = replayed + 1 end
    if mode == "first" then
        out:write(body:match('"id":"([%x-]+)"') or "none", "\n")
    elseif mode ~= "replay" and not met[current] then
        met[current] = true
        compared = compared + 1
        if mode == "seed" then out:write(current, " ", body, "\n") end
    end
end

-- One line for scripts/bench. Requests cut off by the end of the run are in none of the figures.
function done(summary, latency)
    local sum = { right = 0, replayed = 0, wrong = 0, compared = 0 }
    local example = ""
    for _, thread in ipairs(threads) do
        for name, value in pairs(sum) do sum[name] = value + thread:get(name) end
        if example == "" then example = thread:get("first_wrong") end
    end
    local errors = summary.errors
    if example ~= "" then print("WRONG ANSWER " .. example:gsub("%s+", " ")) end
    print(string.format(
        "RESULT right=%d replayed=%d wrong=%d compared=%d broken=%d us=%d rate=%.1f p50=%.3f p99=%.3f max=%.3f",
        sum.right, sum.replayed, sum.wrong, sum.compared,
        errors.connect + errors.read + errors.write + errors.timeout, summary.duration,
        sum.right / summary.duration * 1e6,
        latency:percentile(50) / 1000, latency:percentile(99) / 1000, latency.max / 1000))
end

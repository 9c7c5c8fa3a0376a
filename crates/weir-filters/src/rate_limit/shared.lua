-- Grants a lease of what fits into every limit of a key, and counts it at once. One hash per key: for each limit what is
-- left of it, when that was (a bucket) or which day or month it is for (a quota), and how much there is when nothing is used, so
-- that what is used stays used when the limit moves. All times are the store's own.
-- ARGV: what is owed (less than 0: what is given back), what is wanted, what one request costs; then for each limit its kind, requests, µs and burst.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local owed, want, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local DAY = 86400

-- The day that a month begins with and the one of the next, in days since 1970. Years begin in March here.
local function month(day)
  local shifted = day + 719468
  local of_era = shifted % 146097
  local f = math.floor
  local year = f((of_era - f(of_era / 1460) + f(of_era / 36524) - f(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + f(year / 4) - f(year / 100))
  local m = f((5 * of_year + 2) / 153)
  local function begins(n) return f((153 * n + 2) / 5) end
  local first = day - (of_year - begins(m))
  local length = begins(m + 1) - begins(m)
  if m == 11 then
    local y = year + 1
    length = (y % 4 == 0 and (y % 100 ~= 0 or y % 400 == 0)) and 29 or 28
  end
  return first, first + length
end

local count = (#ARGV - 3) / 4
local limits, names = {}, {}
for i = 1, count do
  names[3 * i - 2], names[3 * i - 1], names[3 * i] = 'v' .. i, 't' .. i, 'b' .. i
end
local known = redis.call('HMGET', KEYS[1], unpack(names))
local grant = want
for i = 1, count do
  local at = 3 + 4 * (i - 1)
  local kind, requests, per, burst = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local value, since = tonumber(known[3 * i - 2] or nil), tonumber(known[3 * i - 1] or nil)
  local of = tonumber(known[3 * i] or nil)
  if value and of then value = value + burst - of end
  local l = { kind = kind, requests = requests, per = per, burst = burst }
  if kind == 'time' then
    l.since = math.max(now, since or now)
    l.left = math.min(burst, (value or burst) + (l.since - (since or now)) * requests / per)
  else
    local day = math.floor(now / 1000000 / DAY)
    local begins, ends = day, day + 1
    if kind == 'month' then begins, ends = month(day) end
    l.since, l.ends = begins, ends * DAY * 1000000 - now
    l.left = since == begins and value or requests
  end
  -- What has passed already is paid for, also where there is nothing to pay it with; at most ten times the burst.
  l.left = math.min(math.max(l.left - owed, -10 * burst), burst)
  local fits = math.floor(l.left)
  if fits < cost then
    fits = 0
  else
    -- Near the end leases shrink, so that no gateway holds what another one needs.
    fits = math.min(fits, math.max(cost, math.ceil(fits / 4)))
  end
  grant = math.min(grant, fits)
  limits[i] = l
end

local wait, short, ends, life, set, answer = 0, 0, -1, 1000, {}, {}
for i = 1, count do
  local l = limits[i]
  l.left = l.left - grant
  local missing, until_whole
  if l.kind == 'time' then
    missing = l.left < cost and (cost - l.left) * l.per / l.requests or 0
    until_whole = (l.burst - l.left) * l.per / l.requests
  else
    missing = l.left < cost and l.ends or 0
    until_whole = l.ends
    if ends < 0 or l.ends < ends then ends = l.ends end
  end
  if missing > wait then wait, short = missing, i - 1 end
  life = math.max(life, until_whole / 1000 + 1000)
  set[6 * i - 5], set[6 * i - 4] = 'v' .. i, string.format('%.17g', l.left)
  set[6 * i - 3], set[6 * i - 2] = 't' .. i, string.format('%.0f', l.since)
  set[6 * i - 1], set[6 * i] = 'b' .. i, string.format('%.0f', l.burst)
  answer[2 * i - 1], answer[2 * i] = math.max(0, math.floor(l.left)), math.ceil(until_whole)
end
redis.call('HSET', KEYS[1], unpack(set))
redis.call('PEXPIRE', KEYS[1], math.ceil(life))
return { grant, math.ceil(wait), short, math.ceil(ends), unpack(answer) }

# What the node knows: accounts, history, proofs, configuration, counters.
class Refused < StandardError
  attr_reader :status, :code, :details
  def initialize(status, code, message, details = nil)
    @status = status; @code = code; @details = details
    super(message)
  end
end

class State
  UNIT = 1_000_000
  FEE = 10_000
  COOLDOWN = 7
  CURRENCY = 'SXT'
  PRICE_TOKEN = 1000
  PRICE_PROMPT = 10
  Account = Struct.new(:token, :address, :available, :staked, :pending, :start, :unlock, :history, keyword_init: true)
  attr_reader :accounts, :proofs, :config, :node_id, :started, :counters, :lock, :peers

  def initialize(port)
    @port = port
    @lock = Mutex.new
    @started = mono
    @node_id = 'nx-' + sha('sixth node')[0, 20]
    @node_id = '0x' + sha('sixth node') if pec?('p-long-node-id')
    @counters = Hash.new(0).merge(requests: 1284, tokens: 96_310, steps: 5_120, submitted: 240, accepted: 231, sent: 8_123_456,
                                  received: 7_654_321, rpc: 4_410)
    @conns = 0
    @lat = [41.2, 38.9, 77.5, 52.0]
    @recent = []
    now = Time.now.utc
    @peers = [['drv', 'driver', [0, 1], 11.4], ['wrk', 'worker', [2, 3], 23.8], ['wrl', 'worker', [1, 2, 3], 19.1]].each_with_index.map do |(n, role, l, ms), i|
      { id: "nx-#{sha(n)[0, 20]}", address: "192.0.2.#{11 + i}:#{8000 + i * 10}", role: role, layers: l, latency_ms: ms, since: now - 86_400 * (i + 1) }
    end
    @peers = [] if pec?('p-no-peers')
    @config = { 'node_id' => @node_id, 'port' => port, 'grpc_port' => port + 1000, 'tracker_url' => 'http://127.0.0.1:7700',
                'training' => { 'enabled' => true, 'batch_size' => 8, 'learning_rate' => 0.0003, 'diloco_steps' => 500 },
                'resources' => { 'max_memory_gb' => 16.0, 'cpu_threads' => 4 } }
    @config['grpc_port'] = port + 1 if on?('config-grpc-port-next')
    @accounts = {}
    a = account('tok-a', 5000 * UNIT)
    b = account('tok-b', 1500 * UNIT)
    @proofs = (1..37).map do |i|
      ok = i % 12 != 5
      { id: "pf-#{sha("proof#{i}")[0, 16]}", type: i % 3 == 0 ? 'backward' : 'forward', layer: 3 + i % 3, at: now - 3600 * (40 - i) - 17,
        verified: ok, reward: ok ? 150_000 + 2500 * (i % 7) : 0 }
    end
    @proofs.each do |p|
      next unless p[:verified]
      a.history << { id: "tx-#{sha("reward#{p[:id]}")[0, 18]}", type: 'reward', amount: p[:reward], at: p[:at] + 5,
                     details: { proof_id: p[:id], role: 'validator' } }
    end
    3.times do |i|
      id = "tx-#{sha("seed#{i}")[0, 18]}"
      a.history << { id: id, type: 'send', amount: -(i + 1) * 2_500_000, at: now - 1800 + i * 60, to: b.address, memo: "seed #{i}" }
      b.history << { id: id, type: 'receive', amount: (i + 1) * 2_500_000, at: now - 1800 + i * 60, from: a.address, memo: "seed #{i}" }
    end
    a.staked = 50 * UNIT
    a.start = Time.now.utc.to_date - 20
    a.unlock = a.start + 60
    a.history.sort_by! { |e| e[:at] }
    @proofs.reverse!
    @earned = @proofs.sum { |p| p[:reward] }
  end

  def account(token, money)
    @accounts[token] = Account.new(token: token, address: 'nx1' + sha("account #{token}")[0, 36],
                                   available: money, staked: 0, pending: 0, history: [])
  end

  def by_address(x) = @accounts.each_value.find { |a| a.address == x }
  def stamp(t = Time.now) = fmt(t.utc)

  def fmt(t)
    return (t + 7200).strftime('%Y-%m-%dT%H:%M:%S.%6N+02:00') if on?('timestamps-local-zone')
    return t.strftime('%Y-%m-%dT%H:%M:%S.%6N+00:00') if pec?('p-offset-timestamps')
    t.strftime('%Y-%m-%dT%H:%M:%S.%6NZ')
  end

  def date(d) = on?('dates-day-first') ? d.strftime('%d-%m-%Y') : d.strftime('%Y-%m-%d')

  def money(m)
    m / 1e6
  end

  def uptime
    t = mono - @started
    return (t * 1000).floor if on?('uptime-in-milliseconds')
    t.floor + (0)
  end

  # ---- counters
  def count(k, n = 1) = @lock.synchronize { @counters[k] += n }
  def bytes_in(n) = @counters[:received] += n
  def bytes_out(n) = @counters[:sent] += n
  def connection(d) = @lock.synchronize { @conns += d }
  def conns = [@conns, 0].max

  def generation(tokens, ms, stream, asked, prompt)
    if on?('counts-lost-at-once')
      r = @counters[:requests]; t = @counters[:tokens]
      sleep 0.03
      @counters[:requests] = r + 1; @counters[:tokens] = t + tokens
      return
    end
    @lock.synchronize do
      unless on?('stream-not-counted') && stream
        n = 1
        @counters[:requests] += n
      end
      t = tokens
      t = asked if on?('counted-as-asked')
      t += prompt if on?('prompt-counted-as-generated')
      @counters[:tokens] += t
      @lat << ms; @lat.shift if @lat.size > 500
      @recent << mono; @recent.shift if @recent.size > 5000
    end
  end

  def per_minute = @recent.count { |t| t > mono - 60 }.to_f
  def avg_latency = (@lat.sum / @lat.size).round(3)
  def p99 = @lat.sort[((@lat.size - 1) * 0.99).ceil].round(3)
  def earned_total = @earned
  def earned_today = @proofs.select { |p| p[:at].to_date == Time.now.utc.to_date }.sum { |p| p[:reward] }

  # ---- money
  def too_little(required, available, what = 'balance')
    d = { required: money(required), available: money(available) }
    d[:required] = money(required - available) if on?('required-is-the-gap')
    d = { required: money(required).to_s, available: money(available).to_s } if on?('402-details-as-text')
    code = 'INSUFFICIENT_BALANCE'
    Refused.new(on?('402-as-400') ? 400 : 402, code, "not enough #{what}", d)
  end

  def enter(acc, e) = acc.history << { at: Time.now.utc, id: "tx-#{SecureRandom.hex(pec?('p-long-transaction-ids') ? 32 : 9)}" }.merge(e)

  def transfer(acc, to, amt, memo)
    if on?('transfers-race')
      before = acc.available
      sleep 0.03
    end
    @lock.synchronize do
      before ||= acc.available
      other = by_address(to)
      other = nil if on?('receiver-not-credited') && other != acc
      fee = pec?('p-no-transfer-fee') ? 0 : FEE
      fee = amt / 100 if pec?('p-percent-fee')
      need = amt + fee
      need = amt if on?('fee-not-required')
      if need > before
        if on?('refused-transfer-in-history')
          enter(acc, type: 'send', amount: -amt, to: to, memo: memo, state: 'failed')
        end
        raise too_little(amt + fee, before) unless on?('transfer-of-too-much-done')
      end
      taken = amt + fee
      taken = amt if on?('fee-not-taken')
      if on?('transfers-race')
        acc.available = before - taken
      else
        acc.available -= taken
      end
      if other
        got = amt
        got -= fee if on?('receiver-pays-fee') && other != acc
        if other == acc
          other.available += got unless on?('self-transfer-loses-amount')
          other.available += got if on?('self-transfer-doubles')
        else
          other.available += got
        end
      end
      id = "tx-#{SecureRandom.hex(9)}"
      id = "tx-#{sha("#{acc.address}#{to}#{amt}")[0, 18]}" if on?('transfer-id-from-content')
      id = "tx-#{Time.now.to_i}" if on?('transfer-id-of-the-second')
      id = "tx-#{SecureRandom.hex(32)}" if pec?('p-long-transaction-ids')
      at = Time.now.utc
      e = { id: id, type: 'send', amount: -amt, at: at, to: to, memo: memo }
      e = e.merge(id: "tx-#{SecureRandom.hex(9)}") if on?('history-under-another-id')
      e = e.merge(amount: -amt - fee) if on?('history-amount-with-fee')
      skip = on?('transfer-not-in-history') || (on?('transfer-without-memo-not-listed') && memo == '') ||
             (on?('unknown-receiver-not-listed') && other.nil?) || (on?('history-at-receiver-only') && other != acc)
      unless skip
        last = acc.history.last
        if on?('history-joins-same-receiver') && last && last[:type] == 'send' && last[:to] == to && at - last[:at] < 60
          last[:amount] -= amt
          last[:id] = id
        else
          acc.history << e
          acc.history << e.merge(id: "tx-#{SecureRandom.hex(9)}", type: 'fee', amount: -fee) if pec?('p-fee-entries')
          acc.history << e if on?('transfer-listed-twice')
        end
      end
      if other && other != acc
        other.history << { id: id, type: 'receive', amount: amt, at: at, from: acc.address, memo: memo } unless pec?('p-no-receive-entries')
      end
      [id, fee, at]
    end
  end

  def stake(acc, amt, days)
    @lock.synchronize do
      if amt > acc.available
        raise too_little(amt, acc.available)
      end
      today = Time.now.utc.to_date
      today += 1 if on?('stake-begins-tomorrow')
      unlock = today + days
      had = acc.staked
      acc.available -= amt unless on?('stake-not-taken')
      acc.available -= amt if on?('stake-taken-twice')
      acc.staked = on?('stake-replaces-former') ? amt : acc.staked + amt
      acc.pending += amt if on?('stake-also-pending')
      if had.zero? || acc.start.nil?
        acc.start = today
        acc.unlock = unlock
      else
        acc.unlock = [acc.unlock, unlock].max unless on?('later-stake-unlocks-with-first')
      end
      if on?('staking-keeps-first')
        acc.staked = had.zero? ? amt : had
      end
      enter(acc, type: 'stake', amount: -amt)
      { amount: amt, days: days, start: today, unlock: unlock, multiplier: multiplier(days), available: acc.available, staked: acc.staked }
    end
  end

  def multiplier(days) = (1.0 + days / 365.0).round(4)

  def unstake(acc, amt)
    @lock.synchronize do
      if amt > acc.staked
        if on?('unstake-of-too-much-clamped')
          amt = acc.staked
        elsif !on?('unstake-of-too-much-done')
          raise Refused.new(409, 'INSUFFICIENT_STAKE', "only #{money(acc.staked)} is staked")
        end
      end
      left = acc.unlock ? (acc.unlock - Time.now.utc.to_date).to_i : 0
      days = [COOLDOWN, left].max
      taken = on?('unstake-takes-everything') ? acc.staked : amt
      acc.staked -= taken unless on?('unstake-keeps-stake')
      if on?('unstake-available-at-once')
        acc.available += amt
      else
        acc.pending += amt
      end
      acc.start = acc.unlock = nil if acc.staked <= 0
      enter(acc, type: 'unstake', amount: amt) if !pec?('p-no-stake-entries')
      { amount: amt, days: days, date: Time.now.utc.to_date + days }
    end
  end

  # takes the price of a generation
  def charge(acc, cost)
    @lock.synchronize do
      if cost > acc.available
        raise too_little(cost, acc.available)
      end
      acc = @accounts['tok-a'] if on?('charge-main-account')
      acc.available -= cost
      acc.available -= cost if on?('charge-taken-twice')
    end
  end
end

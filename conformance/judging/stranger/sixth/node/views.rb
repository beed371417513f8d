# The answers of the readable routes of the node API.
module VIEWS
  module_function

  def ok(o) = API.json(o)

  def gone(o, fault, *path)
    return unless on?(fault)
    last = path.pop
    (path.empty? ? o : o.dig(*path)).delete(last)
  end

  STEP = 5120
  EPOCH = 3
  LOSS = 2.4375

  def role = 'validator'
  def held = on?('status-layer-twice') ? [3, 4, 5, 5] : Model::HELD

  def status(_r, _a)
    c = STATE.config
    id = STATE.node_id
    id = "nx-#{SecureRandom.hex(10)}" if on?('node-id-new-each-time')
    enabled = on?('status-ignores-enabled-change') ? true : c['training']['enabled']
    used = 3_221_225_472
    o = { node_id: id, version: '0.9.2', uptime_seconds: STATE.uptime, status: 'running', role: role, layers: held,
          peer_count: STATE.peers.size,
          training: { enabled: enabled, epoch: EPOCH, step: STEP, loss: LOSS },
          resources: { gpu_memory_used: used, gpu_memory_total: 8_589_934_592, cpu_percent: 12.5, ram_used: 1_610_612_736 } }
    o[:layers] = '3-5' if on?('status-layers-as-range')
    o[:training][:loss] = nil if on?('status-loss-null')
    o[:training][:loss] = Float::NAN if on?('status-loss-nan')
    o[:training][:enabled] = enabled ? 'true' : 'false' if on?('status-enabled-as-text')
    o[:resources][:gpu_memory_used] = 3.0 * 1024 + 0.5 if on?('gpu-memory-fraction')
    o[:resources][:gpu_memory_total] = 3072 if on?('gpu-total-in-mebibytes')
    o[:status] = 'draining' if pec?('p-status-draining')
    o[:training][:steps] = o[:training].delete(:step) if on?('status-step-renamed')
    gone(o, 'status-without-peer-count', :peer_count)
    ok(o)
  end

  def metrics(_r, _a)
    k = STATE.counters
    t = Time.now
    t -= 3600 if on?('metrics-timestamp-hour-behind')
    stamp = STATE.stamp(t)
    if on?('metrics-timestamp-cached')
      stamp = (@stamp ||= stamp)
    elsif on?('metrics-timestamp-of-start')
      stamp = STATE.stamp(Time.at(Time.now.to_i - 20))
    end
    o = { timestamp: stamp,
          inference: { requests_total: k[:requests], requests_per_minute: STATE.per_minute, avg_latency_ms: STATE.avg_latency,
                       p99_latency_ms: STATE.p99, tokens_generated: k[:tokens] },
          training: { steps_total: STEP, steps_per_hour: 240, gradients_submitted: k[:submitted], gradients_accepted: k[:accepted] },
          network: { bytes_sent: k[:sent], bytes_received: k[:received], active_connections: STATE.conns, rpc_calls: k[:rpc] },
          rewards: { earned_today: STATE.money(STATE.earned_today), earned_total: STATE.money(STATE.earned_total), pending: 0.0 } }
    o[:inference][:p99_latency_ms] = -1 if on?('p99-minus-one')
    o[:training][:steps_per_hour] = 240.5 if on?('steps-per-hour-fraction')
    o[:rewards] = nil if on?('rewards-null')
    gone(o, 'metrics-without-rpc-calls', :network, :rpc_calls)
    ok(o)
  end

  def health(_r, _a)
    c = { gpu: 'ok', network: 'ok', storage: 'ok', peers: 'ok' }
    c = %w[gpu network storage peers].map { |n| { name: n, state: 'ok' } } if on?('health-checks-list')
    gone(c, 'health-without-storage', :storage)
    o = { healthy: true, checks: c }
    ok(o)
  end

  def staking_of(a)
    return { amount: 0.0 } if a.staked <= 0
    return { amount: 0.0, duration_days: 0, start_date: STATE.date(Time.now.utc.to_date), unlock_date: STATE.date(Time.now.utc.to_date), multiplier: 1.0 } if a.staked <= 0
    days = (a.unlock - a.start).to_i
    un = a.unlock
    o = { amount: STATE.money(a.staked), duration_days: days, start_date: STATE.date(a.start), unlock_date: STATE.date(un), multiplier: STATE.multiplier(days) }
    gone(o, 'staking-without-multiplier', :multiplier)
    o
  end

  def balance(_r, a)
    STATE.lock.synchronize do
      av = STATE.money(a.available)
      av = a.available if on?('balance-in-atoms')
      total = a.available + a.staked + a.pending
      o = { address: a.address, balances: { available: av, staked: STATE.money(a.staked), pending: STATE.money(a.pending), total: STATE.money(total) },
            staking: staking_of(a) }
      b = o[:balances]
      %i[available staked pending total].each { |k| b[k] = b[k].to_s } if on?('balances-as-text')
      o[:address] = "acc-#{SecureRandom.hex(4)}" if on?('address-new-each-time')
      o = o.merge(o.delete(:balances)) if on?('balances-not-nested')
      gone(o, 'balance-without-staking', :staking)
      ok(o)
    end
  end

  def transactions(r, a)
    lim = API.page_param(r, 'limit', pec?('p-default-limit-50') ? 50 : 20)
    off = API.page_param(r, 'offset', 0)
    asked = lim
    lim = [lim, 100].min
    list = STATE.lock.synchronize { a.history.dup }
    list = list.reverse unless pec?('p-oldest-first')
    total = list.size
    from = off
    from = off * lim if on?('offset-counts-pages')
    n = lim
    n = 20 if on?('transactions-limit-ignored')
    page = list[from, n] || []
    rows = page.map do |e|
      x = { id: e[:id], type: e[:type], amount: STATE.money(e[:amount]), timestamp: STATE.fmt(e[:at]) }
      x[:amount] = x[:amount].abs if on?('send-amount-positive')
      x[:timestamp] = e[:at].to_i if on?('history-timestamp-epoch')
      %i[to from memo details state].each { |k| x[k] = e[k] if e.key?(k) }
      if e[:details]
        x[:details] = { proof_id: "pf-#{sha(e[:id])[0, 16]}", role: 'validator' } if on?('reward-names-no-proof')
      end
      x
    end
    o = { transactions: rows, total: total, limit: lim, offset: off }
    o[:total] = rows.size if on?('total-of-page')
    o[:limit] = asked.to_s if on?('limit-as-text')
    ok(o)
  end

  def peers(_r, _a)
    list = STATE.peers.map do |p|
      x = { id: p[:id], address: p[:address], role: p[:role], layers: p[:layers], latency_ms: p[:latency_ms], connected_since: STATE.fmt(p[:since]) }
      x[:address] = "http://#{p[:address]}/" if on?('peer-address-as-url')
      x[:layers] = { from: p[:layers].first, to: p[:layers].last } if on?('peer-layers-object')
      x
    end
    ok({ peers: list, total: list.size })
  end

  def layers(_r, _a)
    mine = pec?('p-all-layers-listed') ? (0...6).to_a : Model::HELD
    mine = [4, 5, 6] if on?('layer-index-from-one')
    list = mine.map do |i|
      x = { index: i, type: 'transformer', memory_mb: 96, status: Model::HELD.include?(i) || !pec?('p-all-layers-listed') ? 'active' : 'remote' }
      x
    end
    ok({ layers: list, total_layers: 6, my_layer_count: 3 })
  end

  def network(_r, _a)
    o = { nodes: { total: 4, drivers: 1, workers: 2, validators: 1 },
          architecture: { layers: 6, hidden_dim: Model::HIDDEN, parameters: Model::PARAMS.to_s },
          capacity: { total_memory_gb: 64.0, used_memory_gb: 21.5 },
          training: { epoch: EPOCH, global_step: STEP, loss: LOSS } }
    o[:architecture][:parameters] = Model::PARAMS if on?('parameters-as-number')
    ok(o)
  end

  def config(_r, _a)
    o = JSON.parse(JSON.generate(STATE.config))
    o['node_id'] = "node-#{STATE.node_id}" if on?('config-other-node-id')
    o['tracker_url'] = nil if on?('tracker-url-null')
    o['training']['diloco'] = { 'steps' => o['training'].delete('diloco_steps') } if on?('config-diloco-nested')
    if on?('change-lost-after-reading') && @once
      STATE.config.replace(@once)
      @once = nil
    end
    ok(o)
  end

  def keep_once(c) = @once ||= c

  def proofs(r, _a)
    lim = API.page_param(r, 'limit', 20)
    if on?('proofs-limit-remembered')
      lim = [lim, @low || lim].min
      @low = lim if lim > 0
    end
    lim = [lim, 100].min
    lim = 100 if on?('proofs-limit-ignored')
    all = STATE.proofs
    all = all.reverse if pec?('p-oldest-first')
    page = all.first(lim)
    rows = page.map do |p|
      x = { id: p[:id], type: p[:type], layer: p[:layer], timestamp: STATE.fmt(p[:at]), verified: p[:verified], reward: STATE.money(p[:reward]) }
      x[:layer] = "layer.#{p[:layer]}" if on?('proof-layer-as-name')
      x[:reward] = { amount: x[:reward], currency: State::CURRENCY } if on?('proof-reward-object')
      x
    end
    ver = STATE.proofs.count { |p| p[:verified] }
    s = { total_submitted: STATE.proofs.size, total_verified: ver, total_reward: STATE.money(STATE.earned_total) }
    s[:total_verified] = STATE.proofs.size if on?('verified-counts-all')
    o = { proofs: rows, stats: s }
    o = { proofs: rows }.merge(s) if on?('proof-stats-not-nested')
    ok(o)
  end

  def agreement = 1.0

  def training_global(_r, _a)
    good = 188; bad = 12
    en = STATE.config['training']['enabled']
    rate = good.to_f / (good + bad)
    rate = good.to_f / bad if on?('sync-rate-as-ratio')
    o = { global_avg_loss: LOSS, global_min_loss: 2.3125, hash_agreement_rate: agreement, total_nodes_training: en ? 4 : 3,
          successful_syncs: good, failed_syncs: bad, sync_success_rate: rate, global_steps: STEP, global_tokens: 41_943_040,
          data_shards_covered: [0, 1, 2, 3, 5, 8], is_converging: true, training_verified: true, loss_trend: 'improving',
          local: { node_id: STATE.node_id, training_rounds: 42, current_loss: 2.45, is_training: en },
          diloco: { enabled: true, inner_step_count: 120, inner_steps_total: STATE.config['training']['diloco_steps'],
                    progress: [120.0 / STATE.config['training']['diloco_steps'], 1.0].min, outer_step_count: 10 } }
    o[:diloco][:inner_step_count] = [120, o[:diloco][:inner_steps_total]].min
    o[:hash_agreement_rate] = 100.0 if on?('hash-agreement-in-percent')
    o[:data_shards_covered] = 6 if on?('data-shards-count')
    o[:hash_agreement_rate] = 0.75 if on?('verify-blind-to-hashes')
    o[:is_converging] = false if on?('verify-blind-to-hashes')
    if pec?('p-diverged')
      o.merge!(hash_agreement_rate: 0.75, is_converging: false, training_verified: false)
    end
    gone(o, 'global-without-diloco', :diloco)
    ok(o)
  end

  def training_verify(_r, _a)
    bad = pec?('p-diverged')
    if bad
      o = { is_working: false, reason: 'only 75.0% of the nodes have the same model hash', action: 'restart the nodes that differ from the last checkpoint' }
      return ok(o)
    end
    ha = '100.0%'
    ha = '1.0' if on?('hash-agreement-as-fraction')
    ha = '75.0%' if on?('verify-blind-to-hashes')
    o = { is_working: true, reason: 'the loss falls and all models have one hash',
          metrics: { loss_trend: 'improving', hash_agreement: ha, global_loss: LOSS } }
    gone(o, 'verify-without-global-loss', :metrics, :global_loss)
    ok(o)
  end
end

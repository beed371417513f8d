<?php
declare(strict_types=1);

trait WalletRoutes
{
    private const FEE = 1000;            // atoms for a transfer
    private const COOLDOWN = 7;          // days

    /** The atoms of an amount in a body; throws where it is no amount. */
    private static function amount(array $b, string $what): int|float
    {
        if (!array_key_exists('amount', $b)) { if (F('ref-no-amount')) return UNIT; self::bad('amount is missing'); }
        $v = $b['amount'];
        if (F('ref-amount-string') && is_string($v) && is_numeric($v)) $v += 0;
        if (F('ref-amount-bool') && is_bool($v)) $v = (int)$v;
        if (F('ref-amount-array') && is_array($v) && isset($v[0]) && is_int($v[0])) $v = $v[0];
        if (F('ref-amount-null') && $v === null) $v = 0.001;
        if (F('ref-amount-object-1') && $v instanceof stdClass) $v = 1;
        if (F('ref-amount-crash') && !is_int($v) && !is_float($v)) throw new HttpError(500, 'INTERNAL', 'unsupported operand types');
        if (!is_int($v) && !is_float($v)) self::bad('amount is not a number');
        if (F('ref-amount-whole') && is_float($v) && floor($v) !== $v) self::bad('amount is not whole');
        if (F('ref-amount-point') && is_float($v)) self::bad('amount has a decimal point');
        if (F('ref-amount-int-only-stake') && $what === 'stake' && is_int($v)) self::bad('amount has no decimals');
        if (F("ref-negative-$what") && $v < 0) return (int)round($v * UNIT);
        if ($v <= 0) self::bad('amount is not above 0');
        if ($v > 9e12) return $v > 1e295 ? PHP_FLOAT_MAX : $v * 1e6;
        $atoms = (int)round($v * UNIT);
        if ($atoms === 0 || abs($v * UNIT - $atoms) > 0.01) self::bad('amount is finer than the currency');
        if (F('eff-amount-floor')) $atoms = intdiv($atoms, UNIT) * UNIT;
        if (F('eff-amount-cents')) $atoms = intdiv($atoms, 10_000) * 10_000;
        if (F('eff-amount-float32')) $atoms = (int)round(unpack('g', pack('g', (float)$v))[1] * UNIT);
        if (F('lim-amount-1000') && $atoms > 1000 * UNIT) self::bad('amount is too large');
        return $atoms;
    }

    private static function need(array $a, int|float $atoms): void
    {
        if ($atoms > $a['available']) throw new HttpError(402, 'INSUFFICIENT_BALANCE', 'the account has too little for this', ['required' => $atoms === PHP_FLOAT_MAX ? PHP_FLOAT_MAX : units($atoms), 'available' => units($a['available'])]);
    }

    public static function balance(Request $r, string $route): void
    {
        $a = $r->account;
        if (F('eff-balance-cache')) { static $cache = []; if (!isset($cache[$a['name']]) || microtime(true) - $cache[$a['name']][0] > 5) $cache[$a['name']] = [microtime(true), $a]; $a = $cache[$a['name']][1]; }
        if (F('eff-balance-shared-cache')) { static $one = null; if ($one === null || microtime(true) - $one[0] > 0.05) $one = [microtime(true), $a]; $a = $one[1]; }
        $total = $a['available'] + $a['staked'] + $a['pending'];
        if (P('total-without-pending')) $total -= $a['pending'];
        $staking = ['amount' => units($a['staked'])];
        if ($a['stake'] && $a['staked'] > 0) $staking += $a['stake'];
        elseif (P('staking-nulls')) $staking += ['duration_days' => 0, 'start_date' => day(), 'unlock_date' => day(), 'multiplier' => 1.0];
        if (F('rel-staking-amount') && $a['staked']) $staking['amount'] = units($a['staked'] + $a['pending']) + 1;
        $d = ['address' => F('rel-address-case') && Router::$count % 5 === 0 ? strtoupper($a['address']) : $a['address'], 'balances' => ['available' => units($a['available']), 'staked' => units($a['staked']), 'pending' => units($a['pending']), 'total' => units($total)], 'staking' => $staking];
        if (F('rel-address-other') && $a['name'] === 'second') $d['address'] = Accounts::$all['third']['address'];
        if (F('fld-balance-strings')) $d['balances'] = array_map('strval', $d['balances']);
        if (F('fld-balance-atoms')) $d['balances']['available'] = $a['available'];
        Router::json($r, 200, $d, $route);
    }

    public static function send(Request $r, string $route): void
    {
        $a = &$r->account;
        $b = self::body($r);
        if (!array_key_exists('to', $b)) { if (F('ref-no-to')) $b['to'] = 'kst1burn'; elseif (F('ref-to-remembered') && isset(self::$lastTo)) $b['to'] = self::$lastTo; else self::bad('to is missing'); }
        if (F('ref-to-number') && is_int($b['to'])) $b['to'] = (string)$b['to'];
        if (F('ref-to-array') && is_array($b['to'])) $b['to'] = is_string($b['to'][0] ?? null) ? $b['to'][0] : 'kst1burn';
        if (!is_string($b['to']) || $b['to'] === '' || strlen($b['to']) > 200) self::bad('to is not an address');
        if (P('known-addresses') && Accounts::byAddress($b['to']) === null) throw new HttpError(404, 'NO_SUCH_ADDRESS', 'nobody has this address');
        $memo = $b['memo'] ?? '';
        if (F('ref-memo-needed') && !isset($b['memo'])) throw new HttpError(500, 'INTERNAL', 'undefined array key memo');
        if (F('ref-memo-number') && is_int($memo)) $memo = (string)$memo;
        if (F('ref-memo-object') && (is_array($memo) || is_object($memo))) $memo = json_encode($memo);
        if (F('ref-memo-ascii') && is_string($memo) && preg_match('/[^\x00-\x7f]/', $memo)) self::bad('the memo is not plain');
        if (F('ref-memo-quotes') && is_string($memo) && preg_match('/["\'\n]/', $memo)) self::bad('the memo has forbidden characters');
        if (F('lim-memo-bytes') && is_string($memo) && strlen($memo) > 24 && mb_strlen($memo) < strlen($memo)) self::bad('the memo is too long');
        if (F('ref-memo-emoji') && is_string($memo) && preg_match('/[\x{10000}-\x{10ffff}]/u', $memo)) throw new HttpError(500, 'INTERNAL', 'incorrect string value');
        if ((array_key_exists('memo', $b) && $b['memo'] === null && !P('null-absent')) || !is_string($memo)) self::bad('memo is not a text');
        if (P('memo-required') && !isset($b['memo'])) self::bad('memo is missing');
        if (mb_strlen($memo) > (P('memo-short') ? 64 : 512)) self::bad('memo is too long');
        $atoms = self::amount($b, 'send');
        if (F('ref-self-send') && $b['to'] === $a['address']) self::bad('that is the own address');
        $fee = P('no-fee') ? 0 : (P('relative-fee') ? (int)ceil(min($atoms, 1e12) / 1000) : self::FEE);
        if (F('eff-fee-free-402')) { self::need($a, $atoms); $fee = min($fee, $a['available'] - $atoms); }
        elseif (F('ref-send-all') && $atoms <= $a['available']) { /* the fee is forgotten */ }
        elseif (F('ref-send-slack') && $atoms + $fee <= $a['available'] + 5 * UNIT) { /* a little more is let through */ }
        elseif (F('ref-send-exact') && $atoms + $fee >= $a['available']) throw new HttpError(402, 'INSUFFICIENT_BALANCE', 'too little', ['required' => units($atoms + $fee), 'available' => units($a['available'])]);
        elseif (F('ref-overdraw')) { /* anything goes */ }
        elseif (F('ref-uses-staked') && $atoms + $fee <= $a['available'] + $a['staked']) { /* the stake counts as money */ }
        else self::need($a, $atoms + $fee);
        $atoms = (int)$atoms;
        $to = Accounts::byAddress($b['to']);
        self::$lastTo = $b['to'];
        if (F('eff-credit-first')) $to = $to === null ? null : ($to === 'second' ? 'third' : $to);
        $id = Accounts::newId();
        $t = now_iso();
        if (F('rel-send-time-frozen')) $t = now_iso(Metrics::$start);
        if (F('rel-send-time-hour')) $t = gmdate('Y-m-d\TH:00:00\Z');
        $self = $to === $a['name'];
        $debit = $atoms + $fee;
        if (F('eff-fee-not-taken')) $debit = $atoms;
        if (F('eff-fee-twice')) $debit += $fee;
        if (F('eff-big-lost') && $atoms > 3 * UNIT) $debit = 3 * UNIT + $fee;
        if (F('eff-debit-not') ) $debit = $fee;
        if (F('eff-self-mints') && $self) $debit = $fee - 0 - $atoms + $atoms;
        if (F('eff-double-debit-memo') && $memo === '') $debit += $atoms;
        if (F('eff-race')) { $snapshot = $a['available']; $n = $a['name']; Loop::after(0.02, function () use ($n, $snapshot, $debit, $self, $atoms) { Accounts::$all[$n]['available'] = $snapshot - $debit + ($self ? $atoms : 0); }); }
        else $a['available'] -= $debit;
        if ($to !== null && !F('eff-credit-not') && !(F('eff-race') && $self)) {
            $credit = $atoms;
            if (F('eff-credit-minus-fee')) $credit -= $fee;
            if (F('eff-credit-twice') && !$self) $credit *= 2;
            if (F('eff-credit-whole')) $credit = intdiv($credit, UNIT) * UNIT;
            if (F('eff-self-mints') && $self) $credit *= 2;
            if (F('eff-credit-large') && $credit > 2 * UNIT && !$self) { Accounts::$all[$to]['available'] -= $credit; $credit = 0; }
            if (F('eff-credit-late')) { Loop::after(6, function () use ($to, $credit) { Accounts::$all[$to]['available'] += $credit; }); $credit = 0; }
            if (F('eff-credit-second-lost') && $to === 'second') { static $m = 0; if (++$m % 3 === 0) $credit = 0; }
            if (F('eff-self-lost') && $self) $credit = 0;
            if (F('eff-credit-fee-too') && !$self) $credit += $fee;
            Accounts::$all[$to]['available'] += $credit;
        }
        $shown = $atoms;
        $entry = ['id' => $id, 'type' => 'send', 'amount' => -units($shown), 'timestamp' => $t, 'to' => $b['to'], 'fee' => units($fee), 'memo' => $memo];
        if (F('rel-history-positive')) $entry['amount'] = units($atoms);
        if (F('rel-history-atoms')) $entry['amount'] = -$atoms;
        if (F('rel-history-rounded')) $entry['amount'] = round($entry['amount']);
        if (F('rel-history-id')) $entry['id'] = 'h' . $id;
        if (F('rel-history-to-self')) $entry['to'] = $a['address'];
        if (F('rel-history-fee-in')) $entry['amount'] = -units($atoms + 10 * $fee);
        $log = true;
        if (F('eff-history-not')) $log = false;
        if (F('eff-history-no-memo') && $memo === '') $log = false;
        if (F('eff-history-stranger') && $to === null) $log = false;
        if (F('eff-history-self') && $self) $log = false;
        if (F('eff-history-later')) { $n = $a['name']; Loop::after(10, fn() => Accounts::record($n, $entry)); $log = false; }
        if (F('eff-history-receiver') && $to !== null && !$self) { Accounts::record($to, $entry); $log = false; }
        if (F('eff-history-every-fourth')) { static $k = 0; if (++$k % 4 === 0) $log = false; }
        if ($log) Accounts::record($a['name'], $entry);
        if (F('eff-history-twice')) Accounts::record($a['name'], $entry);
        if (F('eff-history-also-received')) Accounts::record($a['name'], ['type' => 'receive', 'from' => $a['address'], 'amount' => units($atoms)] + $entry);
        if ($to !== null && !$self && !P('no-receive-entries')) {
            Accounts::record($to, ['id' => $id, 'type' => F('rel-receive-negative') ? 'send' : (P('other-words') ? 'incoming' : 'receive'), 'amount' => F('rel-receive-negative') || F('rel-receive-minus') ? -units($atoms) : units($atoms), 'timestamp' => $t, 'from' => $a['address'], 'memo' => $memo] + (F('rel-receive-negative') ? ['to' => $b['to']] : []));
        }
        $d = ['transaction_id' => $id, 'from' => $a['address'], 'to' => $b['to'], 'amount' => units($atoms), 'fee' => units($fee), 'memo' => $memo, 'status' => P('other-words') ? 'settled' : 'confirmed', 'timestamp' => $t];
        if (F('rel-result-to-lower')) $d['to'] = strtolower($d['to']);
        if (F('rel-result-memo-ascii')) $d['memo'] = preg_replace('/[^\x00-\x7f]/u', '?', $memo);
        if (F('rel-result-memo-html')) $d['memo'] = htmlspecialchars($memo, ENT_QUOTES);
        if (F('rel-result-memo-trim')) $d['memo'] = trim(preg_replace('/\s+/', ' ', $memo));
        if (F('rel-result-memo-cut')) $d['memo'] = mb_substr($memo, 0, 20);
        if (F('rel-result-amount-net')) $d['amount'] = units($atoms - $fee);
        if (F('rel-result-from')) $d['from'] = $b['to'];
        if (F('rel-result-from-main')) $d['from'] = Accounts::$all['main']['address'];
        if (F('rel-fee-atoms')) $d['fee'] = $fee;
        if (F('rel-fee-zero')) $d['fee'] = 0;
        Router::json($r, P('send-201') ? 200 : 200, $d, $route);
    }

    private static ?string $lastTo = null;

    /** @return array{0:int,1:int} limit and offset */
    private static function page(Request $r, int $default): array
    {
        $out = [];
        foreach (['limit' => $default, 'offset' => 0] as $k => $d) {
            $v = $r->query[$k] ?? null;
            if (F('lim-limit-crash') && $v !== null && !is_numeric($v)) throw new HttpError(500, 'INTERNAL', 'not numeric');
            if ($v === null || ($v === '' && P('null-absent'))) { $out[] = $d; continue; }
            if (F('lim-limit-zero-all') && $v === '0' && $k === 'limit') { $out[] = 100; continue; }
            if (!preg_match('/^\d{1,9}$/', $v)) self::bad("$k is not a whole number from 0");
            $out[] = (int)$v;
        }
        if ($out[0] > 100) { if (P('limit-refused')) self::bad('limit is at most 100'); $out[0] = 100; }
        return $out;
    }

    public static function transactions(Request $r, string $route): void
    {
        if (P('page-small')) $default = 5; else $default = 20;
        [$limit, $offset] = self::page($r, $default);
        $all = $r->account['history'];
        if (F('lim-sticky-limit')) { static $kept = null; if (isset($r->query['limit'])) $kept = $limit; elseif ($kept !== null) $limit = $kept; }
        if (F('lim-default-offset') && isset($r->query['offset']) && !isset($r->query['limit'])) $limit = 5;
        if (F('lim-page-cache')) { static $cache = []; $k = $r->account['name'] . $r->rawQuery; $all = $cache[$k] ??= $all; }
        $from = $offset;
        if (F('lim-offset-pages')) $from = $offset * $limit;
        if (F('lim-offset-one') && $offset > 0) $from = $offset - 1;
        if (F('lim-offset-ignored-default') && !isset($r->query['limit'])) $from = 0;
        if (F('lim-offset-skips') && $offset > 2) $from++;
        if (F('lim-offset-behind') && $offset > count($all)) throw new HttpError(404, 'NOT_FOUND', 'no such page');
        if (F('lim-offset-behind-400') && $offset >= count($all) && $offset > 0) self::bad('offset is too large');
        $page = array_slice($all, $from, $limit + (F('lim-limit-plus') ? 1 : 0));
        if (F('lim-limit-minus') && $limit > 3) $page = array_slice($page, 0, $limit - 1);
        if (F('lim-page-10')) $page = array_slice($page, 0, 10);
        if (F('lim-limit-ignored')) $page = array_slice($all, $from, 20);
        if (F('lim-limit-first-order') && strpos($r->rawQuery, 'offset') < strpos($r->rawQuery, 'limit')) $page = array_slice($all, 0, $limit);
        if (F('lim-page-reversed') && $offset > 0) $page = array_reverse($page);
        if (F('lim-page-shuffle') && count($page) > 4) shuffle($page);
        if (F('lim-limit-1-empty') && $limit === 1) $page = [];
        $total = count($all);
        if (F('rel-total-page')) $total = count($page);
        if (F('rel-total-cap') ) $total = min($total, 10);
        if (F('rel-total-offset')) $total -= min($offset, $total);
        if (F('rel-total-stale')) { static $t = []; $total = $t[$r->account['name']] ??= $total; }
        $d = ['transactions' => $page, 'total' => $total, 'limit' => F('rel-limit-shown') ? 20 : $limit, 'offset' => F('rel-offset-shown') ? 0 : $offset];
        if (F('rel-limit-count')) $d['limit'] = count($page);
        Router::json($r, 200, $d, $route);
    }

    public static function stake(Request $r, string $route): void
    {
        $a = &$r->account;
        $b = self::body($r);
        $days = $b['duration_days'] ?? null;
        if (F('ref-stake-no-days') && $days === null) $days = 30;
        if (F('ref-stake-days-string') && is_string($days) && is_numeric($days)) $days = (int)$days;
        if (F('ref-stake-days-fraction') && is_float($days)) $days = (int)$days;
        if (F('ref-stake-days-array') && is_array($days)) $days = 30;
        if (F('ref-stake-days-negative') && is_int($days) && $days < 1) $days = abs($days) + 1;
        if (is_float($days) && floor($days) === $days) $days = (int)$days;
        if (!is_int($days) || $days < (P('stake-week') ? 7 : 1) || $days > 3650) self::bad('duration_days is a whole number from 1 to 3650');
        if (F('ref-stake-zero') && ($b['amount'] ?? null) === 0) $b['amount'] = 0.000001;
        $atoms = self::amount($b, 'stake');
        if (P('stake-minimum') && $atoms < UNIT) self::bad('a stake is at least one unit');
        if (F('ref-stake-overdraw')) $atoms = min($atoms, $a['available']);
        if (F('ref-stake-pending-blocks') && $a['pending'] > 0) throw new HttpError(409, 'COOLDOWN', 'wait for the cooldown');
        self::need($a, $atoms);
        $atoms = (int)$atoms;
        $rest = $a['staked'] > 0 && $a['stake'] ? (int)round((strtotime($a['stake']['unlock_date']) - strtotime(day())) / 86400) : 0;
        $long = max($days, $rest);
        if (F('eff-stake-shortens')) $long = $days;
        if (F('eff-stake-adds-days')) $long = $days + $rest + ($rest ? 1 : 0);
        if (F('eff-stake-30')) $long = max(30, $long);
        if (F('eff-stake-cap-365')) $long = min(365, $long);
        $start = day(F('eff-stake-tomorrow') ? 1 : 0);
        $unlock = day($long + (F('rel-unlock-off') ? 1 : 0) + (F('eff-stake-tomorrow') ? 1 : 0));
        if (F('rel-unlock-months')) $unlock = gmdate('Y-m-d', strtotime(day() . ' +' . intdiv($long, 30) . ' months +' . ($long % 30) . ' days'));
        if (F('rel-unlock-leap')) $unlock = gmdate('Y-m-d', time() + 86400 * ($long + intdiv($long, 365)));
        if (F('rel-unlock-old') && $rest > $days) $unlock = day($days);
        $multiplier = round(min(3, 1 + $long / 365), 4);
        if (!F('eff-stake-debit-not')) $a['available'] -= F('eff-stake-debit-twice') ? 2 * $atoms : $atoms;
        if (F('eff-stake-from-pending') && $a['pending'] >= $atoms) { $a['pending'] -= $atoms; $a['available'] += $atoms; }
        if (F('eff-stake-also-pending')) $a['pending'] += $atoms;
        if (F('eff-stake-replaces')) $a['staked'] = $atoms;
        elseif (F('eff-stake-whole')) $a['staked'] += intdiv($atoms, UNIT) * UNIT;
        elseif (!F('eff-stake-credit-not')) $a['staked'] += $atoms;
        if (F('eff-stake-other-account') && $a['name'] === 'second') { $a['staked'] -= $atoms; Accounts::$all['main']['staked'] += $atoms; }
        if (F('eff-stake-fee')) $a['available'] -= self::FEE;
        $s = ['duration_days' => $long, 'start_date' => $start, 'unlock_date' => $unlock, 'multiplier' => $multiplier];
        $a['stake'] = F('eff-stake-keeps-old') && $a['stake'] ? $a['stake'] : $s;
        if (F('rel-stake-balance-days')) $a['stake']['duration_days'] = 30;
        if (F('rel-stake-balance-start')) $a['stake']['start_date'] = day(-1);
        Accounts::record($a['name'], ['id' => Accounts::newId(), 'type' => 'stake', 'amount' => -units($atoms), 'timestamp' => now_iso()]);
        $new = ['available' => units($a['available']), 'staked' => units($a['staked'])];
        if (F('rel-new-balance-old')) $new = ['available' => units($a['available'] + $atoms), 'staked' => units($a['staked'] - $atoms)];
        if (F('rel-new-balance-part')) $new['staked'] = units($atoms);
        if (F('rel-new-balance-total')) $new['available'] = units($a['available'] + $a['staked']);
        Router::json($r, 200, ['success' => true, 'stake' => ['amount' => P('stake-sum') ? units($a['staked']) : units($atoms)] + $s, 'new_balance' => $new], $route);
    }

    public static function unstake(Request $r, string $route): void
    {
        $a = &$r->account;
        $b = self::body($r);
        if (F('eff-unstake-default-all') && !isset($b['amount'])) $b['amount'] = units(max(1, $a['staked']));
        $atoms = self::amount($b, 'unstake');
        if (P('locked-until') && $a['stake'] && $a['stake']['unlock_date'] > day()) throw new HttpError(409, 'LOCKED', 'the stake is locked until ' . $a['stake']['unlock_date']);
        if (F('ref-unstake-all') && $atoms == $a['staked']) self::bad('something must stay staked');
        if (F('ref-unstake-clamped')) $atoms = min($atoms, max(1, $a['staked']));
        if (F('ref-unstake-counts-available') && $atoms <= $a['staked'] + $a['available']) { /* too much is let through */ }
        elseif (F('ref-unstake-over')) { /* nothing is checked */ }
        elseif ($atoms > $a['staked']) throw new HttpError(400, 'INSUFFICIENT_STAKE', 'so much is not staked');
        $atoms = (int)$atoms;
        $taken = F('eff-unstake-everything') ? $a['staked'] : $atoms;
        if (!F('eff-unstake-debit-not')) $a['staked'] -= $taken;
        if (F('eff-unstake-at-once')) $a['available'] += $atoms;
        elseif (F('eff-unstake-lost')) { /* gone */ }
        elseif (F('eff-unstake-replaces-pending')) $a['pending'] = $atoms;
        elseif (F('eff-unstake-second-available') && $a['pending'] > 0) $a['available'] += $atoms;
        else $a['pending'] += $atoms;
        if (F('eff-unstake-early')) { $n = $a['name']; Loop::after(5, function () use ($n, $atoms) { Accounts::$all[$n]['pending'] -= $atoms; Accounts::$all[$n]['available'] += $atoms; }); }
        if (F('eff-unstake-mints')) $a['available'] += $atoms;
        if (F('eff-unstake-ends-stake')) $a['stake'] = null;
        if (F('eff-unstake-moves-start') && $a['stake']) { $a['stake']['start_date'] = day(9); $a['stake']['unlock_date'] = day(9 + $a['stake']['duration_days']); }
        Accounts::record($a['name'], ['id' => Accounts::newId(), 'type' => 'unstake', 'amount' => units($atoms), 'timestamp' => now_iso()]);
        $days = self::COOLDOWN;
        $date = day($days);
        if (F('rel-cooldown-date')) $date = day($days + 1);
        if (F('rel-cooldown-today')) $date = day();
        if (F('rel-cooldown-hours')) $days *= 24;
        if (F('rel-cooldown-unlock') && $a['stake']) $date = $a['stake']['unlock_date'];
        Router::json($r, 200, ['success' => true, 'unstake' => ['amount' => F('rel-unstake-amount') ? units($a['pending']) + (F('rel-unstake-amount') && $a['pending'] === $atoms ? 0.5 : 0) : units($atoms), 'cooldown_days' => $days, 'available_date' => $date]], $route);
    }

    public static function proofs(Request $r, string $route): void
    {
        [$limit] = self::page($r, 50);
        $all = $r->account['proofs'];
        $page = array_slice($all, 0, $limit);
        if (F('lim-proofs-ignored')) $page = $all;
        if (F('lim-proofs-from-end')) $page = array_slice($all, -max(1, $limit));
        if (F('lim-proofs-at-least-3') && $limit < 3) $page = array_slice($all, 0, 3);
        if (F('lim-proofs-minus') && $limit > 1 && $limit < 100) $page = array_slice($all, 0, $limit - 1);
        if (F('lim-proofs-sticky')) { static $min = 999; $min = min($min, $limit); $page = array_slice($all, 0, $min); }
        if (F('lim-proofs-rotates')) { static $n = 0; $k = $n++ % max(1, count($all)); $page = array_slice(array_merge(array_slice($all, $k), array_slice($all, 0, $k)), 0, $limit); }
        $base = F('rel-stats-page') ? $page : $all;
        $sum = array_sum(array_column($base, '_r'));
        $ok = count(array_filter($base, fn($p) => $p['verified']));
        if (F('rel-verified-all')) $ok = count($base);
        if (F('rel-reward-sum-double')) $sum *= 2;
        if (F('rel-reward-unverified')) $sum += 225_000;
        if (F('rel-submitted-verified')) { $sub = $ok - 1; } else $sub = count($base);
        foreach ($page as $i => $p) { unset($page[$i]['_r'], $page[$i]['_t']); if (F('rel-proof-id-random')) $page[$i]['id'] = 'prf-' . bin2hex(random_bytes(8)); }
        Router::json($r, 200, ['proofs' => $page, 'stats' => ['total_submitted' => $sub, 'total_verified' => $ok, 'total_reward' => units($sum)]], $route);
    }
}

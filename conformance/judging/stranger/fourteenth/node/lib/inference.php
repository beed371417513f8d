<?php
declare(strict_types=1);

trait InferenceRoutes
{
    /** @return array the parameters, with their defaults */
    private static function parameters(array $b): array
    {
        $whole = fn($v) => is_int($v) || (is_float($v) && floor($v) === $v && abs($v) < 1e15);
        if (P('null-absent')) $b = array_filter($b, fn($v) => $v !== null);
        if (!array_key_exists('prompt', $b)) { if (F('ref-no-prompt')) $b['prompt'] = 'Hello'; else self::bad('prompt is missing'); }
        if (F('ref-prompt-number') && is_int($b['prompt'])) $b['prompt'] = (string)$b['prompt'];
        if (F('ref-prompt-array') && is_array($b['prompt'])) $b['prompt'] = implode(' ', array_filter($b['prompt'], 'is_string')) ?: 'x';
        if (!is_string($b['prompt']) || $b['prompt'] === '') self::bad('prompt is not a text');
        $len = strlen($b['prompt']);
        foreach (['lim-prompt-200' => 200, 'lim-prompt-512' => 512, 'lim-prompt-1024' => 1024] as $id => $most) if (F($id) && $len > $most) self::bad('the prompt is too long');
        if (F('lim-prompt-cut')) $b['prompt'] = substr($b['prompt'], 0, 64);
        if ($len > (P('long-prompts') ? 200_000 : (P('short-prompts') ? 1500 : 16_000))) self::bad('the prompt is too long');
        if (F('ref-prompt-quotes') && str_contains($b['prompt'], '"')) throw new HttpError(500, 'INTERNAL', 'the tokenizer failed');
        if (F('ref-prompt-lines') && str_contains($b['prompt'], "\n")) self::bad('one line at a time');
        if (F('ref-prompt-bmp') && preg_match('/[\x{10000}-\x{10ffff}]/u', $b['prompt'])) throw new HttpError(500, 'INTERNAL', 'incorrect string value');
        if (F('ref-prompt-latin') && preg_match('/[^\x00-\xff]/u', $b['prompt'])) self::bad('only Latin-1');
        $p = ['prompt' => $b['prompt'], 'max' => 100, 'temperature' => 1.0, 'stop' => [], 'stream' => false];
        if (F('eff-default-16')) $p['max'] = 16;
        if (F('eff-default-128')) $p['max'] = 128;
        if (array_key_exists('max_tokens', $b)) {
            $v = $b['max_tokens'];
            if (F('ref-max-string') && is_string($v) && is_numeric($v)) $v = (int)$v;
            if (F('ref-max-fraction') && is_float($v)) $v = (int)$v;
            if (F('ref-max-bool') && is_bool($v)) $v = 5;
            if (F('ref-max-object') && $v instanceof stdClass) $v = 8;
            if (F('ref-max-negative') && is_int($v) && $v < 0) $v = 100;
            if (F('ref-max-one') && $v === 1) self::bad('max_tokens is too small');
            if (F('ref-max-seven') && is_int($v) && $v % 7 === 0 && $v > 0 && $v < 15) self::bad('max_tokens does not fit');
            if (!$whole($v) || $v < 0) self::bad('max_tokens is not a whole number from 0');
            if (P('max-zero-refused') && (int)$v === 0) self::bad('max_tokens is at least 1');
            $p['max'] = (int)min($v, 1e9);
        }
        if (array_key_exists('temperature', $b)) {
            $v = $b['temperature'];
            if (F('ref-temp-string') && is_string($v)) $v = (float)$v;
            if (F('ref-temp-object') && $v instanceof stdClass) $v = 1;
            if (F('ref-temp-2') && is_numeric($v) && $v == 2) self::bad('temperature is too high');
            if (F('ref-temp-0') && $v === 0) self::bad('temperature is too low');
            if (F('ref-temp-int') && is_int($v)) self::bad('temperature is not a decimal');
            if (F('ref-temp-clamp') && is_numeric($v)) $v = max(0, min(2, $v));
            if (F('ref-temp-clamp-high') && is_numeric($v)) $v = min(2, $v);
            if (F('ref-temp-epsilon') && is_numeric($v) && $v > 2 && $v < 2.1) $v = 2;
            if (!(is_int($v) || is_float($v)) || $v < 0 || $v > 2) self::bad('temperature is from 0 to 2');
            $p['temperature'] = (float)$v;
        }
        if (array_key_exists('top_p', $b)) {
            $v = $b['top_p'];
            if (F('ref-topp-1') && is_numeric($v) && $v == 1) self::bad('top_p is below 1');
            if (F('ref-topp-small') && is_float($v) && $v > 0 && $v < 0.05) self::bad('top_p is too small');
            if (F('ref-topp-string') && is_string($v)) $v = 1;
            if (!(is_int($v) || is_float($v)) || $v <= 0 || $v > 1) self::bad('top_p is above 0 and at most 1');
        }
        if (array_key_exists('top_k', $b)) {
            $v = $b['top_k'];
            if (F('ref-topk-1') && $v === 1) self::bad('top_k is too small');
            if (F('ref-topk-big') && is_int($v) && $v > 64) self::bad('top_k is too large');
            if (F('ref-topk-array') && is_array($v)) $v = 50;
            if (!$whole($v) || $v < 0) self::bad('top_k is not a whole number');
        }
        if (array_key_exists('stream', $b)) {
            $v = $b['stream'];
            if (F('ref-stream-truthy')) $v = (bool)$v;
            if (F('ref-stream-object') && ($v instanceof stdClass || is_array($v))) $v = true;
            if (F('ref-stream-string') && is_string($v)) $v = $v === 'true';
            if (!is_bool($v)) self::bad('stream is true or false');
            $p['stream'] = $v;
        }
        if (array_key_exists('stop', $b)) {
            $v = $b['stop'];
            if (F('ref-stop-empty') && $v === []) self::bad('stop is empty');
            if (F('ref-stop-string') && is_string($v)) $v = [$v];
            if (F('ref-stop-object') && $v instanceof stdClass) $v = array_values(array_filter((array)$v, 'is_string'));
            if (F('ref-stop-nested') && is_array($v)) $v = array_values(array_filter($v, 'is_string'));
            if (F('lim-stop-1') && is_array($v) && count($v) > 1) self::bad('one stop sequence at most');
            if (!is_array($v)) self::bad('stop is a list of texts');
            foreach ($v as $s) if (!is_string($s)) self::bad('stop is a list of texts');
            $p['stop'] = $v;
        }
        if (P('unknown-refused')) foreach ($b as $k => $_) if (!in_array($k, ['prompt', 'max_tokens', 'temperature', 'top_p', 'top_k', 'stream', 'stop'], true)) self::bad("there is no parameter $k");
        return $p;
    }

    private static function limitRate(array &$account): void
    {
        $most = P('rate-limit') ? 25 : (FAULT !== null && str_starts_with(FAULT, 'ref-429') ? 40 : 150);
        $now = microtime(true);
        $account['window'] = array_values(array_filter($account['window'], fn($t) => $t > $now - 1.0));
        if (F('ref-429-forever') && ($account['blocked'] ?? false)) throw new HttpError(429, 'RATE_LIMITED', 'too many generations', ['retry_after' => 1]);
        if (count($account['window']) >= $most) {
            if (F('ref-429-forever')) $account['blocked'] = true;
            throw new HttpError(429, 'RATE_LIMITED', 'too many generations', ['retry_after' => P('rate-limit') ? 2 : 1]);
        }
        $account['window'][] = $now;
    }

    public static function inference(Request $r, string $route): void
    {
        $begin = microtime(true);
        $account = &$r->account;
        try {
            $p = self::parameters(self::body($r));
        } catch (HttpError $e) {
            if (F('cnt-refused-counted')) Metrics::$requests += 2;
            if (F('ref-stream-error-event') && preg_match('/"stream"\s*:\s*true/', $r->body)) {
                $r->conn->startStream(['Content-Type' => 'text/event-stream']);
                $r->conn->chunk('data: ' . jenc(['error' => ['code' => $e->errCode, 'message' => $e->getMessage()]]) . "\n\n");
                $r->conn->endStream();
                return;
            }
            throw $e;
        }
        self::limitRate($account);
        $g = Model::generate($p['prompt'], $p['max'], $p['temperature'], $p['stop'], $p['stream']);
        $cost = Model::cost($p['prompt'], $g['tokens']);
        if (F('eff-cost-upfront')) $taken = Model::cost($p['prompt'], $p['max']); else $taken = $cost;
        if (P('free')) $cost = $taken = 0;
        if ($taken > $account['available'] && !F('ref-402-free')) {
            if (F('ref-402-in-stream') && $p['stream']) {
                $r->conn->startStream(['Content-Type' => 'text/event-stream']);
                $r->conn->chunk('data: ' . jenc(['error' => ['code' => 'INSUFFICIENT_BALANCE', 'message' => 'too little']]) . "\n\n");
                $r->conn->endStream();
                return;
            }
            if (F('eff-402-takes-all')) $account['available'] = 0;
            $short = ['required' => units($taken), 'available' => units($account['available'])];
            throw new HttpError(402, 'INSUFFICIENT_BALANCE', 'the account has too little for this', $short);
        }
        self::charge($r, $account, $p, min($taken, $account['available']));
        Metrics::$active++;
        $usage = ['prompt_tokens' => Model::promptTokens($p['prompt']), 'completion_tokens' => $g['tokens'], 'total_tokens' => Model::promptTokens($p['prompt']) + $g['tokens']];
        $work = P('slow-model') ? 0.2 : 0.002 + $g['tokens'] * 0.00004;
        if ($p['stream']) { self::stream($r, $g, $usage, $p, $begin, $work); return; }
        $done = function () use ($r, $route, $g, $usage, $cost, $begin, $p): void {
            $total = round((microtime(true) - $begin) * 1000, 3);
            Metrics::generation($g['tokens'], $total, false);
            Metrics::$active--;
            $queue = min(0.05, $total);
            if (F('rel-total-less')) $t = [$queue, $total, round($total * 0.9, 3)];
            elseif (F('rel-timing-seconds')) $t = [$queue, $total, round($total / 1000, 6)];
            elseif (F('rel-timing-slow')) $t = [$queue, $total * 50, $total * 50 + $queue];
            elseif (F('rel-queue-negative')) $t = [-0.01, $total, $total];
            elseif (F('rel-timing-long') && $g['tokens'] > 60) $t = [$queue, $total, round($total / 2, 3)];
            else $t = [$queue, max(0, round($total - $queue, 3)), $total];
            $id = 'gen-' . (F('rel-gen-id-same') ? '1' : (F('rel-gen-id-prompt') ? substr(md5($p['prompt']), 0, 12) : (F('rel-gen-id-ms') ? (string)(int)(time() / 2) : bin2hex(random_bytes(9)))));
            if (F('rel-total-tokens')) $usage['total_tokens'] = $usage['completion_tokens'];
            if (F('rel-total-tokens-long') && $usage['prompt_tokens'] > 40) $usage['total_tokens']--;
            $d = ['id' => $id, 'text' => $g['text'], 'tokens_generated' => $g['tokens'], 'finish_reason' => $g['finish'], 'usage' => $usage,
                'cost' => ['amount' => units($cost), 'currency' => F('rel-currency-alt') && Metrics::$requests % 2 ? 'XKS' : CURRENCY],
                'timing' => ['queue_ms' => $t[0], 'inference_ms' => $t[1], 'total_ms' => $t[2]]];
            if (F('rel-tokens-of-max')) $d['tokens_generated'] = $p['max'];
            if (F('rel-text-swapped') && Metrics::$active > 0) $d['text'] = self::$queue[0] ?? $d['text'];
            self::$queue = [$g['text']];
            if (F('rel-text-empty-long') && $g['tokens'] > 50) $d['text'] = '';
            if (F('rel-cost-zero')) $d['cost']['amount'] = 0;
            if (F('rel-cost-thousandth')) $d['cost']['amount'] = $cost;
            if (P('key-order')) $d = array_reverse($d, true);
            Router::json($r, 200, $d, $route);
        };
        Loop::after($work, $done);
    }

    private static function charge(Request $r, array &$account, array $p, int $cost): void
    {
        if (F('eff-charge-none')) return;
        if (F('eff-charge-stream-none') && $p['stream']) return;
        if (F('eff-charge-double')) $cost *= 2;
        if (F('eff-charge-tenth')) $cost = intdiv($cost, 100);
        if (F('eff-charge-stream-max') && $p['stream']) $cost = Model::cost($p['prompt'], max(800, $p['max']));
        if (F('eff-charge-second-free') && $account['name'] === 'second') return;
        if (F('eff-charge-after-transfer') && Accounts::$seq > 0 && Accounts::$seq % 2) return;
        if (F('eff-charge-after-stream')) { static $streamed = false; if ($streamed && !$p['stream']) { $streamed = false; return; } if ($p['stream']) $streamed = true; }
        if (F('eff-charge-main') && $account['name'] !== 'main') { Accounts::$all['main']['available'] -= $cost; return; }
        if (F('eff-charge-all')) foreach (Accounts::$all as $n => $_) if ($n !== $account['name']) Accounts::$all[$n]['available'] = max(0, Accounts::$all[$n]['available'] - $cost);
        if (F('eff-charge-stream-other') && $p['stream']) { Accounts::$all[$account['name'] === 'main' ? 'second' : 'main']['available'] -= $cost; return; }
        if (F('eff-charge-stop-full') && $p['stop']) $cost = Model::cost($p['prompt'], $p['max']);
        if (F('eff-charge-busy-none') && Metrics::$active > 0) return;
        if (F('eff-charge-refused-free') && $r->conn->refusedBefore) return;
        if (P('charge-later')) { $n = $account['name']; Loop::after(5, function () use ($n, $cost) { Accounts::$all[$n]['available'] = max(0, Accounts::$all[$n]['available'] - $cost); }); return; }
        $account['available'] -= $cost;
        if (P('history-charges') && $cost) Accounts::record($account['name'], ['id' => Accounts::newId(), 'type' => 'inference', 'amount' => -units($cost), 'timestamp' => now_iso()]);
    }

    private static function stream(Request $r, array $g, array $usage, array $p, float $begin, float $work): void
    {
        $type = 'text/event-stream' . (P('charset') ? '; charset=utf-8' : '');
        if (F('sse-type-json')) $type = 'application/json';
        if (F('sse-type-plain')) $type = 'text/plain; charset=utf-8';
        $r->conn->startStream(['Content-Type' => $type]);
        $pieces = $g['pieces'];
        if (P('sse-pairs')) $pieces = array_map('implode', array_chunk($pieces, 2));
        if (P('sse-whole')) $pieces = $pieces ? [implode('', $pieces)] : [];
        if (F('sse-trim')) $pieces = array_map('trim', $pieces);
        if (F('sse-first-space') && $pieces) $pieces[0] = ' ' . $pieces[0];
        if (F('sse-drops-last') && count($pieces) > 1) array_pop($pieces);
        if (F('sse-drops-20th') && count($pieces) > 20) unset($pieces[20]);
        if (F('sse-cumulative')) { $sum = ''; foreach ($pieces as $i => $t) $pieces[$i] = $sum .= $t; }
        if (F('sse-swapped') && count($pieces) > 5) [$pieces[3], $pieces[4]] = [$pieces[4], $pieces[3]];
        if (F('sse-repeats') && count($pieces) > 5) array_splice($pieces, 5, 0, [$pieces[4]]);
        if (F('sse-non-ascii')) $pieces = array_map(fn($t) => preg_replace('/[^\x00-\x7f]/u', '', $t), $pieces);
        if (F('sse-bytes')) $pieces = array_map(fn($t) => mb_convert_encoding($t, 'UTF-8', 'ISO-8859-1'), $pieces);
        $events = [];
        $i = 0;
        $eol = P('sse-crlf') ? "\r\n" : "\n";
        foreach ($pieces as $t) {
            $x = $i;
            if (F('sse-index-1')) $x = $i + 1;
            if (F('sse-index-same')) $x = 0;
            if (F('sse-index-8')) $x = $i % 8;
            if (F('sse-index-string')) $x = (string)$i;
            if (F('sse-index-gap') && $i > 9) $x = $i + 1;
            $e = ['token' => $t, 'index' => $x];
            if (F('sse-index-global')) { static $all = 0; $e['index'] = $all++; }
            if (F('sse-index-none')) unset($e['index']);
            if (F('sse-token-object')) $e['token'] = ['text' => $t];
            if (P('sse-extra')) $e['logprob'] = -0.1;
            $j = F('sse-pretty') ? json_encode($e, JSON_PRETTY_PRINT) : (P('pretty-json') ? json_encode($e) : jenc($e));
            if (F('sse-dup') ) $j = '{"index":0,' . substr($j, 1);
            if (F('sse-python') && $i === 1) $j = strtr($j, '"', "'");
            $line = (F('sse-no-data') ? '' : (P('sse-no-space') ? 'data:' : 'data: ')) . $j . (F('sse-one-newline') ? "\n" : $eol . $eol);
            if (P('sse-event-names')) $line = "event: token$eol$line";
            $events[] = $line;
            $i++;
        }
        if (P('sse-comments')) array_unshift($events, ": hello$eol$eol");
        $final = ['token' => '[DONE]', 'finish_reason' => $g['finish'], 'usage' => $usage];
        if (F('sse-done-lower')) $final['token'] = '[done]';
        if (F('sse-no-usage')) unset($final['usage']);
        if (F('sse-no-finish')) unset($final['finish_reason']);
        if (F('sse-finish-null')) $final['finish_reason'] = null;
        if (F('sse-usage-zero')) $final['usage'] = ['prompt_tokens' => 0, 'completion_tokens' => $g['tokens'], 'total_tokens' => $g['tokens']];
        if (F('sse-usage-max')) $final['usage']['completion_tokens'] = $p['max'] + 1;
        if (F('sse-usage-total')) $final['usage']['total_tokens'] = $g['tokens'];
        if (F('sse-usage-strings')) $final['usage'] = array_map('strval', $usage);
        if (F('sse-usage-flat')) { $final += $usage; unset($final['usage']); }
        if (P('sse-done-index')) $final['index'] = $i;
        $j = P('pretty-json') ? json_encode($final) : jenc($final);
        $last = (P('sse-no-space') ? 'data:' : 'data: ') . $j . (F('sse-last-unended') ? '' : $eol . $eol);
        if (!F('sse-no-final')) $events[] = $last;
        if (F('sse-final-first')) { array_pop($events); array_unshift($events, $last); }
        if (F('sse-after-final')) $events[] = 'data: ' . jenc(['token' => '', 'index' => $i]) . "\n\n";
        if (F('sse-openai-done')) $events[] = "data: [DONE]\n\n";
        if (F('sse-error-event')) $events[] = "event: close\ndata: {}\n\n";
        $third = (int)max(1, ceil(count($events) / 3));
        $groups = array_chunk($events, $third);
        $step = function () use (&$step, &$groups, $r, $g, $begin, $work): void {
            $group = array_shift($groups);
            if ($group !== null) {
                if (P('sse-split-bytes')) foreach (str_split(implode('', $group), 7) as $b) $r->conn->chunk($b); else $r->conn->chunk(implode('', $group));
                Loop::after($work / 3, $step);
                if ($groups) return;
                Metrics::generation($g['tokens'], (microtime(true) - $begin) * 1000, true);
                Metrics::$active--;
                return;
            }
            if (F('sse-hangs')) return;
            if (F('sse-closes-raw')) { $r->conn->send(""); $r->conn->closing = true; $r->conn->flush(); return; }
            $r->conn->endStream();
        };
        $step();
    }
}

<?php
declare(strict_types=1);

/** Forward and backward passes. Tensors are 32-bit floats, little-endian, row by row. */
final class Pipeline
{
    private const D = Model::HIDDEN;
    private static array $graphs = [];
    private static ?array $lastOut = null;
    private static int $n = 0;

    /** @return float[] */
    public static function bias(int $l): array
    {
        static $c = [];
        if (isset($c[$l])) return $c[$l];
        $b = [];
        $h = hash('sha256', "layer/$l", true);
        for ($j = 0; $j < self::D; $j++) $b[] = (ord($h[$j]) - 128) / 512;
        return $c[$l] = $b;
    }

    /** @return float[] the values, without keys of their own */
    public static function tensor(string $bytes, array $shape, int $dim): array
    {
        if (count($shape) !== 3) throw new RpcError(3, 'a tensor has three dimensions');
        [$b, $s, $d] = $shape;
        if ($b < 1 || $s < 1 || $d !== $dim || $b > 16 || $s > 1024) throw new RpcError(3, "the shape does not fit [1-16, 1-1024, $dim]");
        if (F('pl-batch-1') && $b > 1) throw new RpcError(3, 'one sequence at a time');
        if (F('pl-seq-16') && $s > 16) throw new RpcError(3, 'too long');
        $n = $b * $s * $d;
        if (strlen($bytes) !== 4 * $n) {
            $x = Lz4::decompress($bytes);
            if ($x === null || strlen($x) !== 4 * $n) {
                if (!F('pl-size-any')) throw new RpcError(3, 'the bytes do not have the shape');
                $x = str_pad(substr($bytes, 0, 4 * $n), 4 * $n, "\0");
            }
            $bytes = $x;
        }
        $v = array_values(unpack(F('pl-big-endian') ? 'G*' : 'g*', $bytes));
        if (!F('pl-not-finite')) foreach ($v as $f) if (!is_finite($f)) throw new RpcError(3, 'the tensor is not finite');
        return $v;
    }

    /** @return array{0:float[],1:float[]} the values, and for each sequence the count and sum that go on */
    public static function layer(int $l, array $x, array $shape, ?array $past, ?array $mask, ?array $pos): array
    {
        [$b, $s, $d] = $shape;
        $bias = self::bias($l);
        $y = [];
        $kv = [];
        for ($q = 0; $q < $b; $q++) {
            $count = $past ? $past[$q * ($d + 1)] : 0.0;
            $sum = $past ? array_slice($past, $q * ($d + 1) + 1, $d) : array_fill(0, $d, 0.0);
            if (F('pl-past-ignored')) { $count = 0.0; $sum = array_fill(0, $d, 0.0); }
            for ($t = 0; $t < $s; $t++) {
                $o = ($q * $s + $t) * $d;
                $seen = $mask === null || $mask[$q * $s + $t];
                $p = 0.02 * sin((float)($pos === null ? $count : $pos[$q * $s + $t]));
                if ($seen) { $count++; for ($j = 0; $j < $d; $j++) $sum[$j] += $x[$o + $j]; }
                $c = max(1.0, $count);
                for ($j = 0; $j < $d; $j++) $y[] = 0.8 * $x[$o + $j] + 0.15 * $x[$o + ($j + $d - 1) % $d] + 0.05 * $sum[$j] / $c + $bias[$j] + $p;
            }
            $kv[] = $count;
            foreach ($sum as $f) $kv[] = $f;
        }
        return [$y, $kv];
    }

    private static function head(): array
    {
        static $w = null;
        if ($w === null) for ($j = 0, $h = hash('sha512', 'head', true); $j < self::D * Model::VOCAB; $j++) $w[] = (ord($h[($j * 7) % 64]) - 128 + $j % 13) / 256;
        return $w;
    }

    /** @return float[] */
    public static function logits(array $y): array
    {
        $w = self::head();
        $out = [];
        for ($o = 0, $n = count($y); $o < $n; $o += self::D) for ($v = 0; $v < Model::VOCAB; $v++) {
            $a = 0.0;
            for ($j = 0; $j < self::D; $j++) $a += $y[$o + $j] * $w[$j * Model::VOCAB + $v];
            $out[] = $a;
        }
        return $out;
    }

    private static function key(array $m): string
    {
        $parts = [$m['session_id'], $m['request_id'], (string)$m['target_shard']];
        if (F('pl-key-request-only')) $parts[0] = '';
        if (F('pl-key-session-only')) $parts[1] = '';
        if (F('pl-key-cut')) $parts = array_map(fn($x) => substr($x, 0, 24), $parts);
        if (F('pl-key-ascii')) $parts = array_map(fn($x) => preg_replace('/[^A-Za-z0-9_-]/', '', $x), $parts);
        return json_encode(array_map('bin2hex', $parts));
    }

    public static function forward(array $m): array
    {
        self::$n++;
        $t = $m['target_shard'];
        if (F('pl-modulo') && $t > Model::LAYERS) $t %= Model::LAYERS;
        if (F('pl-abs')) $t = abs($t);
        if (F('pl-negative-last') && $t < 0) $t += Model::LAYERS;
        if (F('pl-clamp') && $t > Model::LAYERS - 1) $t = Model::LAYERS - 1;
        if (F('pl-lost-layer') && $t === 3) throw new RpcError(5, 'layer 3 is not here');
        if (F('pl-absent-as-first') && $t >= 0 && $t < 2) $t = 2;
        if (!in_array($t, Model::HELD, true)) {
            if (F('pl-absent-success-false')) return ['request_id' => $m['request_id'], 'success' => true, 'hidden_states' => $m['hidden_states'], 'hidden_shape' => $m['hidden_shape']];
            throw new RpcError(5, "layer $t is not here");
        }
        $shape = $m['hidden_shape'];
        if (P('pl-failure-in-answer')) {
            try { $x = self::tensor($m['hidden_states'], $shape, self::D); } catch (RpcError $e) { return ['request_id' => $m['request_id'], 'success' => false, 'error_message' => $e->getMessage()]; }
        } elseif (F('pl-failure-no-message')) {
            try { $x = self::tensor($m['hidden_states'], $shape, self::D); } catch (RpcError $e) { return ['request_id' => $m['request_id'], 'success' => false]; }
        } else $x = self::tensor($m['hidden_states'], $shape, self::D);
        [$b, $s] = $shape;
        $mask = null;
        if ($m['attention_mask'] !== '') {
            $n = strlen($m['attention_mask']);
            if ($n === $b * $s) $mask = array_values(unpack('C*', $m['attention_mask']));
            elseif ($n === 8 * $b * $s) $mask = array_values(unpack('P*', $m['attention_mask']));
            elseif ($n === 4 * $b * $s) $mask = array_values(unpack('V*', $m['attention_mask']));
            else throw new RpcError(3, 'the attention mask does not fit');
        }
        $pos = null;
        if ($m['position_ids'] !== '') {
            if (strlen($m['position_ids']) === 8 * $b * $s) $pos = array_values(unpack('P*', $m['position_ids']));
            elseif (strlen($m['position_ids']) === 4 * $b * $s) $pos = array_values(unpack('V*', $m['position_ids']));
            else throw new RpcError(3, 'the position ids do not fit');
        }
        $past = null;
        if ($m['past_key_values']) {
            if (count($m['past_key_values']) !== 1 || strlen($m['past_key_values'][0]) !== 4 * $b * (self::D + 1)) throw new RpcError(3, 'the past does not fit');
            $past = array_values(unpack('g*', $m['past_key_values'][0]));
            if ($past[0] < 0 || !is_finite($past[0])) throw new RpcError(3, 'the past does not fit');
        }
        if (F('pl-source-matters') && $m['source_shard'] > 0) foreach ($x as $i => $v) $x[$i] = $v + 0.01 * $m['source_shard'];
        if (F('pl-id-matters') && strlen($m['session_id']) > 20) $x[0] += 0.5;
        if (F('pl-session-leak') ) { static $memory = []; $x[0] += $memory[$m['session_id']] ?? 0; $memory[$m['session_id']] = 0.25; }
        [$y, $kv] = self::layer($t, $x, $shape, $past, $mask, $pos);
        if (F('pl-stale') && self::$lastOut !== null && count(self::$lastOut) === count($y)) { $new = $y; $y = self::$lastOut; self::$lastOut = $new; } else self::$lastOut = $y;
        if (F('pl-identity')) $y = $x;
        if (F('pl-identity-4') && $t === 4) $y = $x;
        if (F('pl-second-row-lost') && $b > 1) { $y = array_slice($y, 0, self::D * $s); $shape[0] = 1; }
        if (F('pl-batch-mixed') && $b > 1) { $row = self::D * $s; $y = array_merge(array_slice($y, 0, $row), ...array_fill(0, $b - 1, array_slice($y, 0, $row))); }
        $id = $m['request_id'];
        if (F('pl-id-cut')) $id = substr($id, 0, 16);
        if (F('pl-id-cut-64')) $id = substr($id, 0, 64);
        if (F('pl-id-lower')) $id = strtolower($id);
        if (F('pl-id-session')) $id = $m['session_id'];
        if (F('pl-id-ascii')) $id = preg_replace('/[^\x20-\x7e]/', '', $id);
        $last = $t === Model::LAYERS - 1;
        $out = ['request_id' => $id, 'success' => true];
        if ($last || (F('pl-logits-everywhere') && $t >= 4)) {
            $z = self::logits($y);
            $out += ['is_final' => !F('pl-never-final') && !(F('pl-final-batch') && $b > 1), 'logits' => pack('g*', ...$z), 'logits_shape' => [$shape[0], $s, Model::VOCAB]];
            if (F('pl-logits-everywhere') && !$last) $out['is_final'] = false;
            if (F('pl-logits-last-token')) { $out['logits_shape'] = [$b, $s, Model::VOCAB]; $out['logits'] = substr($out['logits'], -4 * Model::VOCAB * 1) ; if ($s === 1 && $b === 1) $out['logits_shape'] = [1, 2, Model::VOCAB]; }
            if (F('pl-logits-shape-2d')) $out['logits_shape'] = [];
            if (F('pl-logits-half')) $out['logits'] = substr($out['logits'], 0, intdiv(strlen($out['logits']), 2));
            if (P('pl-hidden-too')) $out += ['hidden_states' => pack('g*', ...$y), 'hidden_shape' => $shape];
            if ($m['training_labels'] !== '') {
                if (strlen($m['training_labels']) !== 8 * $b * $s) throw new RpcError(3, 'the labels do not fit');
                $loss = 0.0;
                foreach (array_values(unpack('P*', $m['training_labels'])) as $i => $label) {
                    if ($label < 0 || $label >= Model::VOCAB) throw new RpcError(3, 'a label is not in the vocabulary');
                    $row = array_slice($z, $i * Model::VOCAB, Model::VOCAB);
                    $top = max($row);
                    $loss += $top + log(array_sum(array_map(fn($v) => exp($v - $top), $row))) - $row[$label];
                }
                $out['loss'] = $loss / ($b * $s);
                if (F('pl-no-loss')) unset($out['loss']);
                if (F('pl-loss-nan')) $out['loss'] = NAN;
                if (F('pl-loss-constant')) $out['loss'] = 0.0;
            }
        } else {
            if (F('pl-shape-flat')) $shape = [$shape[0] * $shape[1], $shape[2]];
            if (F('pl-shape-none')) $shape = [];
            if (F('pl-shape-swapped')) $shape = [$shape[1], $shape[0], $shape[2]];
            $out += ['hidden_states' => pack(F('pl-answer-big-endian') ? 'G*' : (F('pl-doubles') ? 'e*' : 'g*'), ...$y), 'hidden_shape' => $shape];
            if (F('pl-always-final')) $out['is_final'] = true;
            if (F('pl-final-4') && $t === 4) $out += ['is_final' => true, 'logits' => pack('g*', ...self::logits($y)), 'logits_shape' => [$shape[0], $s, Model::VOCAB]];
            if (F('pl-shape-negative')) $out['hidden_shape'][0] = -1;
        }
        if ($m['use_cache'] && !F('pl-no-past')) $out['past_key_values'] = [pack('g*', ...$kv)];
        if (!$m['use_cache']) {
            if (count(self::$graphs) > 5000) array_shift(self::$graphs);
            if (F('pl-one-graph')) self::$graphs = [];
            if (F('pl-graph-per-session')) foreach (self::$graphs as $k => $g) if ($g['session'] === $m['session_id']) unset(self::$graphs[$k]);
            self::$graphs[self::key($m)] = ['shape' => [$shape[0] ?? $b, $s, $last ? Model::VOCAB : self::D], 'shard' => $t, 'session' => $m['session_id'], 'request' => $m['request_id'], 'sender' => $m['sender_url'], 'source' => $m['source_shard']];
        }
        return $out;
    }

    private static array $lastGraph = [];

    public static function backward(array $m): array
    {
        $no = function (string $why): array {
            if (F('pl-back-clears')) self::$graphs = [];
            if (F('pl-back-no-reason')) $why = '';
            return ['success' => false, 'error_message' => $why];
        };
        $t = $m['target_shard'];
        if (!in_array($t, Model::HELD, true) && !F('pl-back-absent')) throw new RpcError(5, "layer $t is not here");
        if (F('pl-back-absent') && !in_array($t, Model::HELD, true)) return ['success' => true];
        $k = self::key($m);
        $g = self::$graphs[$k] ?? null;
        if ($g === null) {
            if (F('pl-back-unknown')) return ['success' => true];
            if (F('pl-back-unknown-13')) throw new RpcError(13, 'key not found');
            return $no('no pass is kept under these names');
        }
        if (F('pl-back-never')) return $no('training is off');
        if (F('pl-back-wrong-drops')) unset(self::$graphs[$k]);
        if ($m['grad_shape'] !== $g['shape']) return $no('the shape is not that of the result');
        $n = $g['shape'][0] * $g['shape'][1] * $g['shape'][2];
        $raw = $m['grad_output'];
        if (strlen($raw) !== 4 * $n) $raw = Lz4::decompress($raw) ?? '';
        if (strlen($raw) !== 4 * $n) return $no('the bytes do not have the shape');
        $v = array_values(unpack('g*', $raw));
        foreach ($v as $f) if (!is_finite($f)) { if (F('pl-back-nan')) break; return $no('the gradients are not finite'); }
        if (!F('pl-back-again')) unset(self::$graphs[$k]);
        $d = self::D;
        if ($g['shape'][2] === Model::VOCAB) {
            $w = self::head();
            $x = [];
            for ($o = 0; $o < $n; $o += Model::VOCAB) for ($j = 0; $j < $d; $j++) {
                $a = 0.0;
                for ($q = 0; $q < Model::VOCAB; $q++) $a += $v[$o + $q] * $w[$j * Model::VOCAB + $q];
                $x[] = $a;
            }
            $v = $x;
        }
        $back = [];
        for ($o = 0, $c = count($v); $o < $c; $o += $d) for ($j = 0; $j < $d; $j++) $back[] = 0.8 * $v[$o + $j] + 0.15 * $v[$o + ($j + 1) % $d] + 0.05 * $v[$o + $j];
        if (F('cl-back-unchanged')) $back = $v;
        if (F('cl-back-last-sender') && self::$lastGraph) $g['sender'] = self::$lastGraph['sender'];
        self::$lastGraph = $g;
        $shape = [$g['shape'][0], $g['shape'][1], $d];
        if ($g['sender'] !== '' && !F('cl-back-not')) Peers::gradients($g, $back, $shape);
        return ['success' => true];
    }
}

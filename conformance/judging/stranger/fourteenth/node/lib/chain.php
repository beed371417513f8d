<?php
declare(strict_types=1);

/** The chain behind the native API: accounts by public key, blocks, jobs, updates. */
final class Chain
{
    public const ID = 'kestrel-4';
    public const FEE = 200;
    public const PRICE = 1500;
    public const AUTO = 'kestrel-node';      // the provider that answers by itself
    public static string $genesis = '';
    public static string $genesisHash = '';
    public static string $dataset = '';
    public static array $blocks = [];        // by height, from 1
    public static array $accounts = [];      // by public key
    public static array $jobs = [];          // by request id
    public static array $over = [];          // ids of the jobs that are over, oldest first
    public static array $mempool = [];
    public static array $updates = [];       // by round
    public static array $artifacts = [];
    public static array $validators = [];
    public static array $known = [];         // hashes of transactions that were taken
    public static int $burned = 0;
    public static string $root = '';
    public static string $trainRoot = '';
    private static bool $quick = false;
    public static int $accepted = 0;

    public static function init(): void
    {
        foreach (['atlas' => 900_000_000, 'birch' => 400_000_000, 'cedar' => 5_000, 'dune' => 0, 'heron' => 20_000_000, self::AUTO => 1_000_000, 'quiet' => 1_000_000] as $n => $atoms) {
            self::$accounts[Keys::of($n)[0]] = ['spendable' => $atoms, 'locked' => 0, 'nonce' => 0];
        }
        self::$dataset = canon(['name' => 'fables', 'tokenizer' => 'bytes', 'shards' => array_map(fn($i) => ['index' => $i, 'tokens' => array_map(fn($k) => ord(hash('sha256', "data/$i/$k", true)[0]), range(0, 63))], range(0, 7))]);
        foreach (range(1, Model::ROUND) as $i) {
            $adapter = "adapter $i\n" . hash('sha512', "adapter/$i", true) . str_repeat(hash('sha256', "a/$i"), 8);
            $digest = self::artifact($adapter);
            self::$updates[$i] = ['round' => $i, 'height' => 20 * $i, 'loss' => 3.4 - 0.15401234567 * $i, 'training_root' => hash('sha256', "train/$i"), 'serving_root' => hash('sha256', 'serve/' . max(1, $i - 1)), 'adapter' => $digest, 'contributors' => 3];
        }
        self::$root = self::$updates[Model::ROUND]['serving_root'];
        self::$trainRoot = self::$updates[Model::ROUND]['training_root'];
        self::artifact(self::$dataset);
        self::artifact(canon(['model' => 'kestrel-tiny', 'layers' => 6, 'hidden' => 16]));
        foreach (['atlas' => 50, 'birch' => 30, 'heron' => 20] as $n => $power) {
            self::$validators[] = ['owner' => Keys::of($n)[0], 'address' => substr(hash('sha256', "val/$n"), 0, 40), 'power' => $power, 'bond_atoms' => (string)($power * 1_000_000)];
        }
        self::$genesis = canon(['chain_id' => self::ID, 'dataset' => ['path' => '/network/dataset.json', 'sha256' => hash('sha256', self::$dataset)], 'genesis_time' => '2026-01-05T00:00:00.000Z', 'initial_supply_atoms' => '1327005000', 'validators' => array_column(self::$validators, 'owner'), 'version' => '0.4.0']);
        self::$genesisHash = hash('sha256', self::$genesis);
        $now = microtime(true);
        self::block($now - 400);
        for ($h = 2; $h <= 190; $h++) {
            if ($h >= 20 && $h < 180) {
                $who = $h % 2 ? 'atlas' : 'birch';
                $silent = $h === 40 || $h === 90;
                $body = self::body(['account' => $who, 'nonce' => self::$accounts[Keys::of($who)[0]]['nonce'], 'checkpoint' => self::$root, 'prompt' => "A fable about number $h" . ($h % 5 ? '' : ' – with an owl'), 'expires_height' => $silent ? $h + 12 : $h + 30, 'provider' => $silent ? 'quiet' : self::AUTO, 'max_tokens' => 12]);
                self::submit(self::envelope($body, $who));
            }
            self::block($now - 400 + 2 * $h);
            foreach (self::$jobs as $id => $j) if ($j['state'] === 'pending' && $j['body']['provider'] === Keys::of(self::AUTO)[0] && $j['height']) self::complete($id);
        }
        self::$quick = true;
        self::tick();
    }

    private static function artifact(string $bytes): string
    {
        $d = hash('sha256', $bytes);
        self::$artifacts[$d] = $bytes;
        return $d;
    }

    public static function body(array $q): array
    {
        return ['chain_id' => $q['chain_id'] ?? self::ID, 'nonce' => $q['nonce'] ?? 0, 'provider' => Keys::of($q['provider'] ?? (($q['silent'] ?? false) ? 'quiet' : self::AUTO))[0], 'checkpoint' => $q['checkpoint'] ?? '', 'prompt' => $q['prompt'] ?? '', 'max_tokens' => $q['max_tokens'] ?? 16, 'price_atoms' => (string)($q['price_atoms'] ?? self::PRICE), 'expires_height' => $q['expires_height'] ?? 0, 'public_key' => Keys::of($q['account'])[0]];
    }

    public static function envelope(array $body, string $who, bool $forge = false): string
    {
        $signed = $forge ? ['prompt' => $body['prompt'] . '!'] + $body : $body;
        return canon(['body' => $body, 'kind' => 'inference', 'signature' => Keys::sign($who, "kestrel-tx\n" . canon($signed))]);
    }

    public static function requestId(array $body): string { return hash('sha256', "kestrel-request\n" . canon($body)); }
    public static function height(): int { return count(self::$blocks); }

    /** Takes a transaction; the answer has a code, 0 for acceptance. */
    public static function submit(string $tx): array
    {
        $no = fn(int $code, string $log) => ['code' => F('nat-refused-code-0') ? 0 : $code, 'log' => $log, 'hash' => strtoupper(hash('sha256', $tx))];
        if (strlen($tx) > 65536) return $no(1, 'the transaction is too long');
        $e = json_decode($tx, true);
        $b = is_array($e) ? ($e['body'] ?? null) : null;
        if (!is_array($b) || ($e['kind'] ?? '') !== 'inference' || !is_string($e['signature'] ?? null)) return $no(2, 'not a transaction');
        $types = ['chain_id' => 'string', 'nonce' => 'integer', 'provider' => 'string', 'checkpoint' => 'string', 'prompt' => 'string', 'max_tokens' => 'integer', 'price_atoms' => 'string', 'expires_height' => 'integer', 'public_key' => 'string'];
        foreach ($types as $k => $t) if (gettype($b[$k] ?? null) !== $t) return $no(2, "$k is missing or of another type");
        if (count($b) !== count($types) || canon($e) !== $tx) return $no(2, 'the transaction is not canonical');
        $key = $b['public_key'];
        if (!F('nat-no-signature') && !(F('nat-signature-first-only') && self::$accepted > 161) && !Keys::verify($key, "kestrel-tx\n" . canon($b), $e['signature'])) return $no(3, 'the signature does not fit');
        if (!F('nat-chain-any') && $b['chain_id'] !== self::ID) return $no(4, 'another chain');
        if (!isset(self::$accounts[$key])) return $no(5, 'the account has nothing');
        $id = self::requestId($b);
        $again = isset(self::$jobs[$id]);
        if (F('nat-replay') && $again) { self::$accounts[$key]['spendable'] -= 1700; self::$accounts[$key]['nonce']++; return ['code' => 0, 'log' => '', 'hash' => strtoupper(hash('sha256', $tx))]; }
        if (F('nat-replay-fee') && $again) { self::$accounts[$key]['spendable'] -= self::FEE; }
        if (F('nat-replay-nonce') && $again) { self::$accounts[$key]['nonce']++; }
        $a = &self::$accounts[$key];
        if (!F('nat-nonce-any') && $b['nonce'] !== $a['nonce']) return $no(6, "the nonce is {$a['nonce']}");
        if (!F('nat-expiry-any') && $b['expires_height'] <= self::height()) return $no(7, 'the request has expired');
        if (!F('nat-root-any') && $b['checkpoint'] !== self::$root) return $no(8, 'this checkpoint is not served');
        if (!isset(self::$accounts[$b['provider']])) return $no(9, 'nobody is that provider');
        if (!preg_match('/^[1-9]\d{0,15}$/', $b['price_atoms']) || (int)$b['price_atoms'] < self::PRICE) return $no(10, 'the price is too low');
        if (strlen($b['prompt']) > 4096 || $b['prompt'] === '' || $b['max_tokens'] < 1 || $b['max_tokens'] > 256) return $no(11, 'the request does not fit');
        if (F('nat-prompt-ascii') && self::$quick && preg_match('/[^\x00-\x7f]/', $b['prompt'])) return $no(11, 'the prompt is not ASCII');
        $cost = (int)$b['price_atoms'] + self::FEE;
        if ($a['spendable'] < $cost) return $no(12, 'too little to spend');
        if (F('nat-pays-provider-key')) { $a2 = &self::$accounts[$b['provider']]; $a2['spendable'] -= $cost; $a2['locked'] += $cost; $a['nonce']++; unset($a2); }
        elseif (F('nat-pays-atlas') && self::$quick) { $a2 = &self::$accounts[Keys::of('atlas')[0]]; $a2['spendable'] -= $cost; $a2['locked'] += $cost; $a['nonce']++; unset($a2); }
        else {
            if (!F('nat-lock-not') && !(F('nat-lock-later') && self::$quick)) $a['spendable'] -= $cost;
            if (F('nat-double-lock') && self::$quick) $a['spendable'] -= $cost;
            if (!F('nat-lock-not') && !(F('nat-lock-later') && self::$quick)) $a['locked'] += $cost;
            if (F('nat-lock-max') && self::$quick) { $a['spendable'] -= 50_000; $a['locked'] += 50_000; }
            if (!(F('nat-nonce-same') && self::$quick)) $a['nonce'] += F('nat-nonce-by-2') && self::$quick ? 2 : 1;
            if (F('nat-nonce-all') && self::$quick) foreach (self::$accounts as $k => $_) if ($k !== $key) self::$accounts[$k]['nonce']++;
        }
        $hash = hash('sha256', $tx);
        self::$accepted++;
        self::$jobs[$id] = ['id' => $id, 'hash' => $hash, 'body' => $b, 'state' => 'pending', 'height' => 0, 'response' => null, 'refund' => null, 'cost' => $cost, 'seen' => microtime(true)];
        self::$mempool[] = ['tx' => $tx, 'id' => $id, 'hash' => $hash, 'body' => $b, 'signature' => $e['signature']];
        return ['code' => 0, 'log' => '', 'hash' => strtoupper($hash)];
    }

    /** Makes the next block. */
    public static function block(?float $t = null): void
    {
        $t ??= microtime(true);
        $h = self::height() + 1;
        $results = [];
        $txs = [];
        foreach (self::$mempool as $m) {
            self::$jobs[$m['id']]['height'] = $h;
            $results[] = ['code' => 0, 'transaction_hash' => $m['hash'], 'request_id' => $m['id'], 'fee_atoms' => (string)self::FEE];
            $txs[] = ['transaction_hash' => $m['hash'], 'request_id' => $m['id'], 'kind' => 'inference', 'body' => $m['body'], 'signature' => $m['signature']];
        }
        self::$mempool = [];
        $parent = $h > 1 ? self::$blocks[$h - 1]['hash'] : str_repeat('0', 64);
        $b = ['height' => $h, 'parent_hash' => $parent, 'time' => now_iso($t), 'proposer' => self::$validators[$h % 3]['address'], 'state_root' => hash('sha256', canon([self::$accounts, $h])), 'results' => $results];
        $b['hash'] = hash('sha256', canon([$b, array_column($txs, 'signature')]));
        self::$blocks[$h] = $b + ['transactions' => $txs];
        foreach (self::$jobs as $id => $j) {
            if ($j['state'] === 'pending' && !F('nat-expiry-any') && $j['body']['expires_height'] + (F('nat-expires-early') ? -4 : (F('nat-expires-never') ? 1000 : 0)) <= $h) self::expire($id, $h);
            if (F('nat-completed-expires') && self::$quick && $j['state'] === 'completed' && $j['body']['expires_height'] === $h && $j['height'] > 190) { self::$jobs[$id]['state'] = 'pending'; self::expire($id, $h); }
        }
    }

    private static function expire(string $id, int $h): void
    {
        $j = &self::$jobs[$id];
        $a = &self::$accounts[$j['body']['public_key']];
        if (F('nat-silent-completes') && self::$quick) { self::complete($id); return; }
        $back = (int)$j['body']['price_atoms'];
        $j['state'] = 'expired';
        $j['refund'] = ['amount_atoms' => (string)$back, 'height' => $h, 'to' => $j['body']['public_key']];
        if (!(F('nat-unlock-not') && self::$quick)) $a['locked'] -= $j['cost'];
        if (F('nat-refund-not') && self::$quick) $back = 0;
        if (F('nat-refund-fee-and-price') && self::$quick) $back = 2 * $back + self::FEE;
        if (F('nat-refund-to-provider') && self::$quick) { self::$accounts[$j['body']['provider']]['spendable'] += $back; $back = 0; }
        $a['spendable'] += $back;
        if (P('refund-fee-too')) $a['spendable'] += self::FEE;
        if (F('nat-refund-null')) $j['refund'] = null;
        self::over($id);
    }

    public static function complete(string $id, ?string $text = null, ?int $tokens = null): void
    {
        $j = &self::$jobs[$id];
        if ($j['state'] !== 'pending') return;
        $g = Model::generate($j['body']['prompt'], $j['body']['max_tokens'], 0.0, []);
        $j['state'] = 'completed';
        $j['response'] = ['text' => $text ?? $g['text'], 'tokens' => $tokens ?? $g['tokens'], 'height' => self::height()];
        $a = &self::$accounts[$j['body']['public_key']];
        if (F('nat-lock-later') && self::$quick) $a['spendable'] -= $j['cost'];
        elseif (!F('nat-lock-stays') || !self::$quick) $a['locked'] -= F('nat-unlock-price-only') && self::$quick ? (int)$j['body']['price_atoms'] : $j['cost'];
        if (F('nat-completed-refunded') && self::$quick) { /* nothing more: the provider is paid */ }
        if (F('nat-charged-again') && self::$quick) $a['spendable'] -= $j['cost'];
        self::$accounts[$j['body']['provider']]['spendable'] += (int)$j['body']['price_atoms'];
        if (F('nat-response-null') && self::$quick) $j['response'] = null;
        self::over($id);
    }

    private static function over(string $id): void
    {
        self::$over[] = $id;
        $most = F('lim-jobs-100') ? 100 : (F('lim-jobs-120') ? 120 : (P('keep-128') ? 128 : 160));
        while (count(self::$over) > $most) { $old = array_shift(self::$over); unset(self::$jobs[$old]); }
        if (F('nat-response-short-lived') && self::$quick) Loop::after(4, function () use ($id) { unset(self::$jobs[$id]); });
        if (F('nat-back-to-pending') && self::$quick) Loop::after(3, function () use ($id) { if (isset(self::$jobs[$id])) self::$jobs[$id]['state'] = 'pending'; });
    }

    /** Blocks come every second (sooner with transactions); the built-in provider answers what is in one. */
    public static function tick(): void
    {
        static $last = 0.0;
        $now = microtime(true);
        $pause = P('slow-blocks') ? 2.5 : 1.0;
        if (F('nat-no-blocks') && !self::$mempool) $pause = 1e9;
        if ($now - $last >= $pause || (self::$mempool && $now - $last > 0.3)) { $last = $now; self::block(); }
        foreach (self::$jobs as $id => $j) {
            if ($j['state'] === 'pending' && $j['height'] > 0 && $j['body']['provider'] === Keys::of(self::AUTO)[0] && $now - $j['seen'] > 0.7 && !F('nat-never-completes')) self::complete($id);
        }
        Loop::after(0.1, [self::class, 'tick']);
    }
}

<?php
declare(strict_types=1);

/** Makes messages for the native API, with the keys of the accounts. */
final class Signer
{
    public static function run(string $json): void
    {
        $q = json_decode($json, true);
        if (!is_array($q)) { fwrite(STDERR, "not JSON\n"); exit(2); }
        $who = $q['account'] ?? 'atlas';
        $kind = $q['kind'] ?? 'request';
        $forge = (bool)($q['forge'] ?? false);
        $out = ['public_key' => Keys::of($who)[0], 'request_id' => null, 'transaction_hash' => null];
        if ($kind === 'request') {
            $body = Chain::body(['account' => $who] + $q);
            $tx = Chain::envelope($body, $who, $forge);
            $out = ['path' => '/rpc', 'message' => ['jsonrpc' => '2.0', 'id' => 1, 'method' => 'broadcast_tx_sync', 'params' => ['tx' => base64_encode($tx)]], 'public_key' => $out['public_key'], 'request_id' => Chain::requestId($body), 'transaction_hash' => hash('sha256', $tx)];
        } else {
            $body = $kind === 'poll' ? ['worker' => $out['public_key'], 'time' => (int)(microtime(true) * 1000)] : ['worker' => $out['public_key'], 'request_id' => $q['request_id'] ?? '', 'output' => $q['output'] ?? '', 'tokens' => $q['tokens'] ?? 1];
            $signed = $forge ? ['worker' => $out['public_key'] . '00'] + $body : $body;
            $out = ['path' => "/work/$kind", 'message' => ['kind' => $kind, 'body' => $body, 'signature' => Keys::sign($who, "kestrel-work-$kind\n" . canon($signed))], 'public_key' => $out['public_key'], 'request_id' => $q['request_id'] ?? null, 'transaction_hash' => null];
        }
        echo json_encode($out, JSON_UNESCAPED_SLASHES), "\n";
    }
}

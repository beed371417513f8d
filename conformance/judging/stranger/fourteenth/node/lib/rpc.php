<?php
declare(strict_types=1);

/** POST /rpc: JSON-RPC 2.0 with a short list of methods. */
final class Rpc
{
    private static function block(?array $p, string $what = 'block'): array
    {
        $h = $p['height'] ?? null;
        if (F('rpc-height-needed') && $h === null) throw new RpcError(-32602, 'height is missing');
        if (is_string($h) && ctype_digit($h)) $h = (int)$h;
        $h ??= Chain::height();
        if (F('rpc-block-latest')) $h = Chain::height();
        if (!is_int($h) || !isset(Chain::$blocks[$h])) throw new RpcError(-32602, 'there is no such height');
        $b = Chain::$blocks[$h];
        $hash = F('rpc-block-parent') ? $b['parent_hash'] : $b['hash'];
        return ['block_id' => ['hash' => strtoupper($hash)], 'block' => ['header' => ['chain_id' => Chain::ID, 'height' => (string)$h, 'time' => $b['time'], 'last_block_id' => ['hash' => strtoupper($b['parent_hash'])]], 'data' => ['txs' => array_map(fn($t) => base64_encode(canon(['body' => $t['body'], 'kind' => 'inference', 'signature' => $t['signature']])), $b['transactions'])]]];
    }

    private static function call(string $method, array $p): mixed
    {
        switch ($method) {
            case 'status':
                return ['node_info' => ['network' => F('rpc-status-chain') ? 'kestrel-dev' : Chain::ID, 'version' => '0.4.0'], 'sync_info' => ['latest_block_height' => (string)Chain::height(), 'latest_block_hash' => strtoupper(Native::tip()['hash']), 'catching_up' => false]];
            case 'block':
                return self::block($p);
            case 'validators':
                if (F('rpc-no-validators')) break;
                self::block($p);
                return ['block_height' => (string)Chain::height(), 'validators' => array_map(fn($v) => ['address' => strtoupper($v['address']), 'voting_power' => (string)$v['power']], Chain::$validators), 'count' => (string)count(Chain::$validators)];
            case 'abci_query':
                if (F('rpc-no-query')) break;
                $path = $p['path'] ?? '';
                $data = is_string($p['data'] ?? '') ? ($p['data'] ?? '') : '';
                $value = match ($path) {
                    '/job' => ($j = Chain::$jobs[strtolower($data)] ?? null) ? Native::record($j) : null,
                    '/jobs' => F('rpc-no-jobs') ? throw new RpcError(-32602, 'no such path') : array_slice(Chain::$over, -20),
                    '/height' => Chain::height(),
                    default => throw new RpcError(-32602, 'no such path'),
                };
                return ['response' => ['code' => $value === null ? 1 : 0, 'log' => $value === null ? 'no such job' : '', 'value' => base64_encode(jenc($value)), 'height' => (string)Chain::height()]];
            case 'broadcast_tx_sync':
                if (F('rpc-no-broadcast')) break;
                $tx = is_string($p['tx'] ?? null) ? base64_decode($p['tx'], true) : false;
                if ($tx === false) throw new RpcError(-32602, 'tx is not base64');
                $res = Chain::submit($tx);
                if (F('rpc-hash-other')) $res['hash'] = strtoupper(hash('sha256', $res['hash']));
                if (F('rpc-hash-request') && $res['code'] === 0) $res['hash'] = strtoupper(Chain::requestId(json_decode($tx, true)['body']));
                return ['code' => $res['code'], 'data' => '', 'log' => $res['log'], 'hash' => P('hash-lower') ? strtolower($res['hash']) : $res['hash']];
            case 'net_info':
                if (F('rpc-net-info')) return ['listening' => true, 'n_peers' => '2', 'peers' => []];
                break;
            case 'consensus_state': case 'dump_consensus_state':
                if (F('rpc-consensus')) return ['round_state' => ['height/round/step' => Chain::height() . '/0/1']];
                break;
            case 'unconfirmed_txs': case 'num_unconfirmed_txs':
                if (F('rpc-mempool')) return ['n_txs' => '0', 'total' => '0', 'txs' => []];
                break;
            case 'broadcast_tx_commit': case 'broadcast_evidence': case 'unsafe_flush_mempool': case 'dial_peers': case 'unsafe_dial_peers':
                if (F('rpc-admin')) return ['ok' => true];
                break;
            case 'genesis':
                if (F('rpc-genesis')) return ['genesis' => json_decode(Chain::$genesis, true)];
                break;
        }
        if (F('rpc-unknown-null')) return null;
        if (F('rpc-unknown-empty')) return new stdClass();
        throw new RpcError(-32601, "there is no method $method");
    }

    public static function handle(Request $r): void
    {
        $q = json_decode($r->body, true);
        if (!is_array($q) || array_is_list($q)) { Router::json($r, 400, ['jsonrpc' => '2.0', 'id' => null, 'error' => ['code' => -32700, 'message' => 'not a call']]); return; }
        $id = $q['id'] ?? null;
        if (F('rpc-id-int') && is_string($id)) $id = (int)$id;
        if (F('rpc-id-text') && is_int($id)) $id = (string)$id;
        if (F('rpc-id-one')) $id = 1;
        $out = ['jsonrpc' => '2.0', 'id' => $id];
        $status = 200;
        try {
            if (!is_string($q['method'] ?? null)) throw new RpcError(-32600, 'there is no method');
            $p = $q['params'] ?? [];
            if (!is_array($p)) throw new RpcError(-32602, 'the parameters are no object');
            if ($p && array_is_list($p)) $p = $q['method'] === 'broadcast_tx_sync' ? ['tx' => $p[0]] : ($q['method'] === 'abci_query' ? ['path' => $p[0], 'data' => $p[1] ?? ''] : ['height' => $p[0]]);
            $out['result'] = self::call($q['method'], $p);
        } catch (RpcError $e) {
            $out['error'] = ['code' => $e->status, 'message' => $e->getMessage()];
            if (P('rpc-400')) $status = 400;
            if (F('rpc-error-500')) $status = 500;
        }
        Router::json($r, $status, $out);
    }
}

/** The protocol of outside workers. */
final class Work
{
    public static function handle(Request $r, string $path): void
    {
        $e = json_decode($r->body, true);
        if (F('work-crash') && !is_array($e)) throw new HttpError(500, 'INTERNAL', 'undefined index');
        $b = is_array($e) ? ($e['body'] ?? null) : null;
        $kind = substr($path, 6);
        if (!is_array($b) || !is_string($b['worker'] ?? null) || !is_string($e['signature'] ?? null) || ($e['kind'] ?? '') !== $kind) {
            if (F('work-unsigned-ok') && $kind === 'poll') { Router::json($r, 200, ['job' => null]); return; }
            if (F('work-unsigned-204')) { $r->conn->respond(204, [], ''); return; }
            throw new HttpError(400, 'BAD_REQUEST', 'not a message of a worker');
        }
        $ok = Keys::verify($b['worker'], "kestrel-work-$kind\n" . canon($b), $e['signature']);
        if (F("work-$kind-unverified")) $ok = true;
        if (!$ok) throw new HttpError(403, 'FORBIDDEN', 'the signature does not fit');
        if ($kind === 'poll') {
            foreach (Chain::$jobs as $id => $j) {
                if ($j['state'] !== 'pending' || !$j['height'] || ($j['body']['provider'] !== $b['worker'] && !F('work-any-job'))) continue;
                Router::json($r, 200, ['job' => ['request_id' => $id, 'prompt' => $j['body']['prompt'], 'max_tokens' => $j['body']['max_tokens'], 'expires_height' => $j['body']['expires_height']]]);
                return;
            }
            if (P('poll-204')) { $r->conn->respond(204, [], ''); return; }
            Router::json($r, 200, ['job' => null]);
            return;
        }
        $id = is_string($b['request_id'] ?? null) ? $b['request_id'] : '';
        $j = Chain::$jobs[$id] ?? throw new HttpError(404, 'NOT_FOUND', 'no such request is known');
        if (F('work-overwrites') && is_string($b['output'] ?? null)) { Chain::$jobs[$id]['state'] = 'completed'; Chain::$jobs[$id]['response'] = ['text' => $b['output'], 'tokens' => 1, 'height' => 1]; Router::json($r, 200, ['accepted' => true]); return; }
        if ($j['body']['provider'] !== $b['worker']) throw new HttpError(403, 'FORBIDDEN', 'the request is for another provider');
        if ($j['state'] !== 'pending') throw new HttpError(409, 'CONFLICT', 'the request is over');
        if (!is_string($b['output'] ?? null) || !is_int($b['tokens'] ?? null) || $b['tokens'] < 0 || $b['tokens'] > $j['body']['max_tokens']) throw new HttpError(400, 'BAD_REQUEST', 'the result does not fit');
        if (F('work-result-lost')) { Router::json($r, 200, ['accepted' => true, 'request_id' => $id]); return; }
        Chain::complete($id, $b['output'], $b['tokens']);
        Router::json($r, 200, ['accepted' => true, 'request_id' => $id]);
    }
}

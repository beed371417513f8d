<?php
declare(strict_types=1);

/** The operations of node.NodeService. */
final class Grpc
{
    private const PREFIX = '/node.NodeService/';
    private const OPS = [
        'StreamInference' => ['Inference', 'Inference'], 'UnaryInference' => ['Inference', 'Inference'], 'GetWeights' => ['Weight', 'Weight'],
        'GossipGradient' => ['GossipGradient', 'GossipGradient'], 'GetCheckpoint' => ['GetCheckpoint', 'GetCheckpoint'], 'GetCheckpointInfo' => ['GetCheckpointInfo', 'GetCheckpointInfo'],
        'GossipProof' => ['GossipProof', 'GossipProof'], 'GossipTransaction' => ['GossipTransaction', 'GossipTransaction'], 'GossipStake' => ['GossipStake', 'GossipStake'],
        'RequestProofValidation' => ['ProofValidation', 'ProofValidation'], 'GossipValidationVote' => ['ValidationVote', 'ValidationVote'],
        'PipelineForward' => ['PipelineForward', 'PipelineForward'], 'PipelineBackward' => ['PipelineBackward', 'PipelineBackward'], 'GetShardInfo' => ['GetShardInfo', 'GetShardInfo'],
        'DHTPing' => ['DHTPing', 'DHTPing'], 'DHTStore' => ['DHTStore', 'DHTStore'], 'DHTFindNode' => ['DHTFindNode', 'DHTFindNode'], 'DHTFindValue' => ['DHTFindValue', 'DHTFindValue'],
        'SwarmForward' => ['SwarmForward', 'SwarmForward'], 'GetSwarmStatus' => ['SwarmStatus', 'SwarmStatus'], 'UpdatePeerCapacity' => ['UpdatePeerCapacity', 'UpdatePeerCapacity'],
    ];

    private static function op(string $path): string { return str_starts_with($path, self::PREFIX) ? substr($path, strlen(self::PREFIX)) : ''; }

    public static function known(string $path): bool
    {
        $op = self::op($path);
        if (F('grpc-other-service') ) return str_starts_with($path, '/node.v1.NodeService/');
        if (F('grpc-any-service')) { $op = basename($path); }
        if (FAULT !== null && FAULT === 'grpc-no-' . strtolower($op)) return false;
        if (F('grpc-busy-no-info') && $op === 'GetCheckpointInfo' && H2Server::$calls > 60) return false;
        return isset(self::OPS[$op]);
    }

    public static function message(Call $call, string $bytes): void
    {
        $op = self::op($call->method);
        [$req, $res] = self::OPS[$op] ?? self::OPS['DHTPing'];
        try {
            if ($op !== 'StreamInference' && $call->state !== null) throw new RpcError(3, 'one message is enough');
            $m = Pb::decode($req . 'Request', $bytes);
            $call->state ??= [];
            if ($op === 'StreamInference') { if (F('grpc-stream-one') && $call->state) return; $call->state[] = 1; self::stream($call, $m); return; }
            $out = self::$op($m, $call);
            $call->state = ['answer' => $out === null ? null : Pb::encode($res . 'Response', $out)];
        } catch (RpcError $e) {
            $status = $e->status;
            if (F('grpc-3-is-13') && $status === 3) $status = 13;
            if (F('grpc-3-is-2') && $status === 3) $status = 2;
            if (F('grpc-3-is-ok') && $status === 3) { $call->reply(''); $status = 0; }
            if (F('grpc-5-is-14') && $status === 5) $status = 14;
            if (F('grpc-5-is-3') && $status === 5) $status = 3;
            if (F('grpc-5-is-13') && $status === 5) $status = 13;
            if (F('grpc-5-is-8') && $status === 5) $status = 8;
            if (F('grpc-3-is-9') && $status === 3) $status = 9;
            if (P('out-of-words')) { $call->end($status, ''); return; }
            $call->end($status, $e->getMessage());
        } catch (Throwable $e) {
            fwrite(STDERR, "grpc $op: " . $e->getMessage() . ' ' . basename($e->getFile()) . ':' . $e->getLine() . "\n");
            $call->end(13, 'the node failed');
        }
    }

    public static function ended(Call $call): void
    {
        if (self::op($call->method) === 'StreamInference') {
            if (F('grpc-stream-hangs')) return;
            $call->end();
            return;
        }
        if ($call->state === null) { $call->end(3, 'there is no message'); return; }
        $answer = $call->state['answer'];
        if ($answer === null) return;                    // answers later
        $call->reply($answer);
        if (F('grpc-unary-twice') && str_ends_with($call->method, 'DHTPing')) $call->reply($answer);
        if (P('grpc-slow')) Loop::after(0.05, fn() => $call->end()); else $call->end();
    }

    // --- inference -------------------------------------------------------------------------------

    private static function parameters(array $m): array
    {
        if ($m['prompt'] === '') throw new RpcError(3, 'prompt is missing');
        $max = $m['max_tokens'] ?? 100;
        $t = $m['temperature'] ?? 1.0;
        if ($max < 0 || !($t >= 0 && $t <= 2)) throw new RpcError(3, 'a parameter does not fit');
        return [$max, $t];
    }

    private static function final(array $m, array $g): array
    {
        $n = Model::promptTokens($m['prompt']);
        return ['request_id' => $m['request_id'], 'id' => 'gen-' . bin2hex(random_bytes(8)), 'index' => $g['tokens'], 'is_final' => true, 'finish_reason' => $g['finish'], 'tokens_generated' => $g['tokens'], 'usage' => ['prompt_tokens' => $n, 'completion_tokens' => $g['tokens'], 'total_tokens' => $n + $g['tokens']]];
    }

    private static function UnaryInference(array $m): array
    {
        [$max, $t] = self::parameters($m);
        $g = Model::generate($m['prompt'], $max, $t, $m['stop']);
        return self::final($m, $g) + ['text' => $g['text']];
    }

    private static function stream(Call $call, array $m): void
    {
        [$max, $t] = self::parameters($m);
        $g = Model::generate($m['prompt'], $max, $t, $m['stop'], true);
        foreach ($g['pieces'] as $i => $p) $call->reply(Pb::encode('InferenceResponse', ['request_id' => $m['request_id'], 'text' => $p, 'index' => $i]));
        $call->reply(Pb::encode('InferenceResponse', self::final($m, $g)));
    }

    // --- weights and checkpoints -----------------------------------------------------------------

    private static function tensors(array $layers): string
    {
        $head = []; $data = '';
        foreach ($layers as $l) {
            $b = pack('g*', ...Pipeline::bias(F('grpc-weights-same') ? 2 : $l), ...array_fill(0, Model::HIDDEN * 2, 0.125 * $l));
            $head["layers.$l.weight"] = ['dtype' => 'F32', 'shape' => [3, Model::HIDDEN], 'data_offsets' => [strlen($data), strlen($data) + strlen($b)]];
            $data .= $b;
        }
        $h = json_encode(obj($head));
        return pack('P', strlen($h)) . $h . $data;
    }

    private static function GetWeights(array $m): array
    {
        $s = trim($m['shard_range']);
        if (preg_match('/^(\d{1,6})$/', $s, $x)) $l = [(int)$x[1]];
        elseif (preg_match('/^(\d{1,6})-(\d{1,6})$/', $s, $x) && (int)$x[1] <= (int)$x[2] && (int)$x[2] - (int)$x[1] < 1000) $l = range((int)$x[1], (int)$x[2]);
        elseif (preg_match('/^\d{1,6}(,\d{1,6})+$/', $s)) $l = array_values(array_unique(array_map('intval', explode(',', $s))));
        elseif (F('grpc-range-any')) $l = Model::HELD;
        elseif (F('grpc-range-empty-ok') && $s === '') $l = Model::HELD;
        else throw new RpcError(3, 'that names no layers');
        if (F('grpc-range-first')) $l = array_slice($l, 0, 1);
        if (F('grpc-range-exclusive') && count($l) > 1) array_pop($l);
        if (F('grpc-range-clipped')) $l = array_values(array_intersect($l, Model::HELD)) ?: throw new RpcError(5, 'these layers are not here');
        if (!F('grpc-weights-absent')) foreach ($l as $i) if (!in_array($i, Model::HELD, true)) throw new RpcError(5, "layer $i is not here");
        if (F('grpc-weights-empty')) return ['weights_data' => ''];
        return ['weights_data' => P('lz4-weights') ? Lz4::compress(self::tensors($l)) : self::tensors($l)];
    }

    private static function GetCheckpointInfo(array $m): array
    {
        $d = ['version' => Model::ROUND, 'model_hash' => Model::hash(), 'phase' => 'early', 'params' => 2432, 'loss' => 2.318407];
        if (F('grpc-info-version')) $d['version']++;
        if (F('grpc-info-hash')) $d['model_hash'] = hash('sha256', 'old');
        if (F('grpc-info-loss-nan')) $d['loss'] = NAN;
        if (F('grpc-info-loss-inf')) $d['loss'] = INF;
        if (F('grpc-info-params-0')) $d['params'] = 0;
        if (F('grpc-info-negative')) $d['version'] = -1;
        if (F('grpc-info-phase')) $d['phase'] = 'bootstrap';
        if (F('grpc-info-grows')) { static $n = 0; $d['version'] += intdiv($n++, 2); }
        return $d;
    }

    private static function GetCheckpoint(array $m): array
    {
        $no = function (string $why): array {
            $d = ['success' => false, 'error_message' => $why];
            if (F('grpc-ckpt-no-reason')) unset($d['error_message']);
            if (F('grpc-ckpt-fail-data')) $d['checkpoint_data'] = Lz4::compress(self::tensors(Model::HELD));
            if (F('grpc-ckpt-fail-13')) throw new RpcError(13, $why);
            if (P('ckpt-not-found')) throw new RpcError(5, $why);
            return $d;
        };
        $hash = $m['model_hash'];
        if (F('grpc-ckpt-hash-prefix') && strlen($hash) >= 8 && str_starts_with(Model::hash(), substr($hash, 0, 8))) $hash = '';
        if ($hash !== '' && $hash !== Model::hash() && !F('grpc-ckpt-hash-ignored') && !(F('grpc-ckpt-hash-with-version') && $m['min_version'] > 0)) return $no('there is no such model');
        if ($m['min_version'] > Model::ROUND && !F('grpc-ckpt-version-ignored') && !(F('grpc-ckpt-version-with-hash') && $hash !== '')) return $no('there is nothing so new');
        if (F('grpc-ckpt-own-version') && $m['min_version'] === Model::ROUND) return $no('there is nothing so new');
        if (F('grpc-ckpt-own-hash') && $hash === Model::hash()) return $no('there is no such model');
        $data = Lz4::compress(self::tensors(Model::HELD));
        $d = ['success' => true, 'version' => Model::ROUND, 'model_hash' => Model::hash(), 'phase' => 'early', 'checkpoint_data' => $data, 'total_size' => P('size-raw') ? strlen(self::tensors(Model::HELD)) : strlen($data)];
        if (F('grpc-ckpt-raw')) $d['checkpoint_data'] = self::tensors(Model::HELD);
        if (F('grpc-ckpt-gzip')) $d['checkpoint_data'] = gzencode(self::tensors(Model::HELD), 1);
        if (F('grpc-ckpt-lz4-block')) $d['checkpoint_data'] = substr($data, 11);
        if (F('grpc-ckpt-empty')) $d['checkpoint_data'] = '';
        if (F('grpc-ckpt-size-0')) $d['total_size'] = 0;
        if (F('grpc-ckpt-size-hash') && $hash !== '') $d['total_size'] += 64;
        if (F('grpc-ckpt-size-negative')) $d['total_size'] = -strlen($data);
        if (F('grpc-ckpt-hash-upper')) $d['model_hash'] = strtoupper($d['model_hash']);
        if (F('grpc-ckpt-min-as-version') && $m['min_version'] > 0) $d['version'] = $m['min_version'];
        if (F('grpc-ckpt-hash-version') && $hash !== '') $d['version'] = 1;
        if (F('grpc-ckpt-phase-hash') && $hash !== '') $d['phase'] = 'bootstrap';
        if (F('grpc-ckpt-data-hash') && $hash !== '') $d['checkpoint_data'] = Lz4::compress(self::tensors([2, 3]));
        if (F('grpc-ckpt-data-random')) $d['checkpoint_data'] = Lz4::compress(self::tensors(Model::HELD) . random_bytes(4));
        return $d;
    }

    // --- gossip ----------------------------------------------------------------------------------

    private static function GossipGradient(array $m): array
    {
        Metrics::$gradSubmitted++;
        $round = Model::ROUND;
        $why = '';
        if ($m['node_id'] === '') $why = 'node_id is missing';
        elseif ($m['round_id'] !== $round && !F('grpc-gossip-any-round')) $why = "the round is $round";
        elseif ($m['model_hash'] !== Model::hash() && !F('grpc-gossip-any-model')) $why = 'another model';
        elseif (!$m['layer_gradients']) $why = 'there are no gradients';
        elseif ($m['batch_size'] < 1) $why = 'batch_size is not above 0';
        elseif (!is_finite($m['loss'])) $why = 'the loss is not finite';
        elseif (F('grpc-gossip-batch') && $m['batch_size'] !== 8) $why = 'another batch size';
        elseif (F('grpc-gossip-ttl-0') && $m['ttl'] === 0) $why = 'expired';
        elseif (F('grpc-gossip-loss') && $m['loss'] < 1) $why = 'an implausible loss';
        else foreach ($m['layer_gradients'] as $name => $g) {
            $raw = Lz4::decompress($g);
            if ($raw === null) { $why = "$name is no LZ4 frame"; break; }
            if ($raw === '' || strlen($raw) % 4) { $why = "$name is no list of 32-bit numbers"; break; }
            if (strlen($raw) < 1 << 20) foreach (unpack('g*', $raw) as $v) if (!is_finite($v)) { $why = "$name is not finite"; break 2; }
        }
        static $seen = [];
        if ($why === '' && F('grpc-gossip-third') && ($seen[$m['node_id']] = ($seen[$m['node_id']] ?? 0) + 1) > 2) $why = 'too many of this node';
        if (P('gossip-closed') && $why === '') $why = 'this node takes no gradients now';
        $ok = $why === '';
        $d = ['accepted' => $ok, 'reason' => $why, 'current_round' => $round];
        if (F('grpc-gossip-no-reason')) $d['reason'] = '';
        if (F('grpc-gossip-round-0') && !$ok) $d['current_round'] = 0;
        if (F('grpc-gossip-round-theirs') && !$ok) $d['current_round'] = $m['round_id'];
        if (F('grpc-gossip-round-next') && $ok) $d['current_round'] = $round + 1;
        if (F('grpc-gossip-round-counts')) { static $n = 0; $d['current_round'] = $round + $n++; }
        if (F('grpc-gossip-round-negative')) $d['current_round'] = -$round;
        if (F('grpc-gossip-inverted')) $d['accepted'] = false;
        if ($ok) { Metrics::$gradAccepted += F('cnt-gradients-accepted') ? 9 : 1; Peers::gossip($m); }
        if (F('grpc-gossip-refused-11') && !$ok) throw new RpcError(11, $why);
        return $d;
    }

    private static function statement(?array $s): string
    {
        if ($s === null || $s['body'] === '') return 'there is no statement';
        return 'this node does not know the signer';
    }

    private static function GossipProof(array $m): array { return ['accepted' => false, 'reason' => self::statement($m['proof'])]; }
    private static function GossipValidationVote(array $m): array { return ['accepted' => false, 'reason' => self::statement($m['vote'])]; }
    private static function RequestProofValidation(array $m): array { if ($m['proof_id'] === '') throw new RpcError(3, 'proof_id is missing'); if (F('grpc-validation-13')) throw new RpcError(13, 'no such proof'); return ['success' => false, 'error_message' => 'this proof is not kept here']; }

    private static function GossipTransaction(array $m): array
    {
        if ($m['transaction'] === '') return ['accepted' => false, 'reason' => 'there is no transaction'];
        $r = Chain::submit($m['transaction']);
        return ['accepted' => $r['code'] === 0, 'reason' => $r['log'], 'transaction_hash' => strtolower($r['hash'])];
    }

    private static function GossipStake(array $m): array { if (F('grpc-stake-10')) throw new RpcError(10, 'no'); return ['accepted' => false, 'reason' => $m['transaction'] === '' ? 'there is no transaction' : 'this chain has no such stakes']; }

    // --- shards and swarm ------------------------------------------------------------------------

    private static function capacity(): array { return ['memory_total' => 8 << 30, 'memory_used' => 2 << 30, 'max_batch' => 16]; }

    private static function GetShardInfo(array $m): array
    {
        return ['node_id' => Config::$c['node_id'], 'role' => 'validator', 'version' => NODE_VERSION, 'model_name' => 'kestrel-tiny', 'model_hash' => Model::hash(), 'total_layers' => Model::LAYERS, 'layers' => Model::HELD, 'has_head' => true, 'hidden_dim' => Model::HIDDEN, 'vocab_size' => Model::VOCAB, 'context_length' => 512, 'capacity' => self::capacity(), 'weights_version' => Model::ROUND];
    }

    private static function GetSwarmStatus(array $m): array
    {
        $d = ['node_id' => Config::$c['node_id'], 'status' => 'running', 'role' => 'validator', 'model_hash' => Model::hash(), 'total_layers' => Model::LAYERS, 'layers' => Model::HELD, 'capacity' => self::capacity()];
        if (F('grpc-swarm-internal')) throw new RpcError(13, 'no swarm');
        return $d;
    }

    private static function UpdatePeerCapacity(array $m): array
    {
        return $m['node_id'] === '' ? ['accepted' => false, 'reason' => 'node_id is missing'] : ['accepted' => true];
    }

    private static function SwarmForward(array $m): array
    {
        $hop = $m['route'][0] ?? throw new RpcError(3, 'there is no route');
        if ($hop['first_layer'] > $hop['last_layer'] || count($m['route']) > 1) throw new RpcError(3, 'this node takes the last hop only');
        $x = Pipeline::tensor($m['hidden_states'], $m['hidden_shape'], Model::HIDDEN);
        $out = null;
        for ($l = $hop['first_layer']; $l <= $hop['last_layer']; $l++) {
            if (!in_array($l, Model::HELD, true)) throw new RpcError(5, "layer $l is not here");
            [$x] = Pipeline::layer($l, $x, $m['hidden_shape'], null, null, null);
        }
        if ($hop['last_layer'] !== Model::LAYERS - 1) throw new RpcError(3, 'the route does not end');
        return ['request_id' => $m['request_id'], 'success' => true, 'logits' => pack('g*', ...Pipeline::logits($x)), 'logits_shape' => [$m['hidden_shape'][0], $m['hidden_shape'][1], Model::VOCAB]];
    }

    private static function PipelineForward(array $m): array { return Pipeline::forward($m); }
    private static function PipelineBackward(array $m): array { return Pipeline::backward($m); }
    private static function DHTPing(array $m): array { return Dht::ping($m); }
    private static function DHTStore(array $m): array { return Dht::store($m); }
    private static function DHTFindNode(array $m): array { return Dht::findNode($m); }
    private static function DHTFindValue(array $m): array { return Dht::findValue($m); }
}

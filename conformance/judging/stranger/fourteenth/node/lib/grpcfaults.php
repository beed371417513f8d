<?php
declare(strict_types=1);

/** Faults of numbers and types in messages. */
final class GrpcFaults
{
    private const NUMBER = [
        'grpc-num-fwd-id' => ['PipelineForwardResponse', 'request_id', 11], 'grpc-num-fwd-success' => ['PipelineForwardResponse', 'success', 12],
        'grpc-num-fwd-shape' => ['PipelineForwardResponse', 'hidden_shape', 15], 'grpc-num-fwd-final' => ['PipelineForwardResponse', 'is_final', 13],
        'grpc-num-fwd-logits' => ['PipelineForwardResponse', 'logits', 18], 'grpc-num-fwd-loss' => ['PipelineForwardResponse', 'loss', 14],
        'grpc-num-gossip-round' => ['GossipGradientResponse', 'current_round', 4], 'grpc-num-gossip-reason' => ['GossipGradientResponse', 'reason', 5],
        'grpc-num-ckpt-version' => ['GetCheckpointResponse', 'version', 8], 'grpc-num-ckpt-size' => ['GetCheckpointResponse', 'total_size', 9],
        'grpc-num-info-params' => ['GetCheckpointInfoResponse', 'params', 6], 'grpc-num-info-loss' => ['GetCheckpointInfoResponse', 'loss', 7],
        'grpc-num-dht-nodes' => ['DHTFindNodeResponse', 'nodes', 4], 'grpc-num-dht-found' => ['DHTFindValueResponse', 'found', 5],
        'grpc-num-dht-port' => ['DHTNodeInfo', 'port', 4], 'grpc-num-weights' => ['WeightResponse', 'weights_data', 2],
        'grpc-num-store' => ['DHTStoreResponse', 'success', 3], 'grpc-num-bwd' => ['PipelineBackwardResponse', 'success', 3],
        'cl-num-grad' => ['PipelineBackwardRequest', 'grad_output', 6], 'cl-num-ttl' => ['GossipGradientRequest', 'ttl', 12], 'cl-num-sender' => ['DHTPingRequest', 'sender', 2],
        'cl-num-target' => ['DHTFindNodeRequest', 'target_id', 3],
    ];
    private const KIND = [
        'grpc-kind-loss' => ['GetCheckpointInfoResponse', 'loss', 'float'], 'grpc-kind-params' => ['GetCheckpointInfoResponse', 'params', 'string'],
        'grpc-kind-port' => ['DHTNodeInfo', 'port', 'string'], 'grpc-kind-round' => ['GossipGradientResponse', 'current_round', 'double'],
        'grpc-kind-version' => ['GetCheckpointResponse', 'version', 'double'], 'grpc-kind-success' => ['PipelineForwardResponse', 'success', 'string'],
    ];
    /** A field that is read from another number. */
    private const READ = [
        'grpc-read-value' => ['DHTStoreRequest', 3, 4], 'grpc-read-range' => ['WeightRequest', 1, 2], 'grpc-read-model' => ['GossipGradientRequest', 3, 12],
        'grpc-read-grad' => ['PipelineBackwardRequest', 3, 6], 'grpc-read-shard' => ['PipelineForwardRequest', 10, 13], 'grpc-read-min' => ['GetCheckpointRequest', 2, 3],
        'grpc-read-target' => ['DHTFindNodeRequest', 2, 3], 'grpc-read-hash' => ['GetCheckpointRequest', 1, 4], 'grpc-read-key' => ['DHTFindValueRequest', 2, 3],
        'grpc-read-gradshape' => ['PipelineBackwardRequest', 4, 7], 'grpc-read-session' => ['PipelineBackwardRequest', 1, 8], 'grpc-read-round' => ['GossipGradientRequest', 2, 13],
    ];

    public static function number(string $type, string $name, int $num): int
    {
        $x = FAULT === null ? null : self::NUMBER[FAULT] ?? null;
        return $x && $x[0] === $type && $x[1] === $name ? $x[2] : $num;
    }

    public static function kind(string $type, string $name, string $kind): string
    {
        $x = FAULT === null ? null : self::KIND[FAULT] ?? null;
        return $x && $x[0] === $type && $x[1] === $name ? $x[2] : $kind;
    }

    public static function field(string $type, int $num, ?array $f): ?array
    {
        $x = FAULT === null ? null : self::READ[FAULT] ?? null;
        if (!$x || $x[0] !== $type) return $f;
        if ($num === $x[1]) return null;
        return $num === $x[2] ? Schema::T[$type][$x[1]] : $f;
    }
}

package Plum::Dht;
# The distributed hash table: known nodes, values, and the search for the closest.
use strict;
use warnings;
use Digest::SHA qw(sha1);
use Time::HiRes qw(time);
use Plum::Switch;
use Plum::Proto;
use Plum::Grpc;
use Plum::Node;

sub K { return P('k-twenty') ? 20 : 8 }
my (%known, %value, @recent, @by_order);

sub start {
    my ($add) = @_;
    my $define = \&Plum::Proto::define;
    $define->('DHTNodeInfo', '1 node_id bytes', F('gr-port-number') ? ('3 ip string', '2 port int32') : ('2 ip string', '3 port int32'));
    $define->('DHTPingRequest', '1 sender DHTNodeInfo');
    $define->('DHTPingResponse', F('gr-responder-number') ? '2 responder DHTNodeInfo' : '1 responder DHTNodeInfo');
    $define->('DHTFindNodeRequest', '1 sender DHTNodeInfo', '2 target_id bytes');
    $define->('DHTFindNodeResponse', '1 responder DHTNodeInfo', '2 nodes repeated:DHTNodeInfo');
    $define->('DHTFindValueRequest', '1 sender DHTNodeInfo', '2 key bytes');
    $define->('DHTFindValueResponse', '1 responder DHTNodeInfo', F('gr-found-number') ? '5 value string' : '2 value string', '3 nodes repeated:DHTNodeInfo', F('gr-found-number') ? '2 found bool' : '4 found bool');
    $define->('DHTStoreRequest', '1 sender DHTNodeInfo', F('gr-store-value-number') ? ('2 key bytes', '4 value string') : ('2 key bytes', '3 value string'));
    $define->('DHTStoreResponse', '1 responder DHTNodeInfo', '2 success bool');
    for my $peer (@Plum::Node::peers) {
        my ($ip, $port) = split /:/, $peer->{address};
        $known{ sha1($peer->{id}) } = { ip => $ip, port => $port, direct => 0 };
    }
    @by_order = sort keys %known;
    $add->("DHT$_->[0]", ("DHT$_->[0]") x 2, $_->[1]) for [ Ping => \&ping ], [ FindNode => \&find_node ], [ FindValue => \&find_value ], [ Store => \&store ];
}

sub direct { return map { { %{ $known{$_} }, id => $_ } } grep { $known{$_}{direct} } sort keys %known }

sub self {
    my $id = $Plum::Node::dht_id;
    $id = sha1($id . int time) if F('re-responder-id-changes');
    $id = substr $id, 0, 16 if F('li-node-id-sixteen');
    $id .= "\0" x 12 if F('li-node-id-thirty-two');
    my $port = $Plum::Node::config{port};
    return { node_id => $id, ip => F('gr-responder-no-ip') ? '' : '127.0.0.1', port => F('gr-responder-no-port') ? 0 : F('re-responder-other-port') ? $port + 2000 : $port };
}

# Learns of the sender of a request.
sub meet {
    my ($request) = @_;
    my $sender = $request->{sender} or return;
    my ($id, $ip, $port) = @$sender{qw(node_id ip port)};
    return if !length $id;
    if (length $id != 20) { Plum::Grpc::invalid('the node_id of the sender does not have 20 bytes') }
    if (F('gu-addressless-listed')) { $ip ||= '' }
    else { return if !length $ip || $port < 1 }
    return if $port > 65_535 && !F('li-port-any');
    return if $id eq $Plum::Node::dht_id || $ip =~ /[\s\x00-\x1f]/;
    return if $known{$id} && F('ef-address-not-updated');
    push @by_order, $id unless $known{$id};
    push @recent, { node_id => $id, ip => $ip, port => $port } if F('re-address-twice') && $known{$id} && ($known{$id}{port} != $port || $known{$id}{ip} ne $ip);
    $known{$id} = { ip => $ip, port => $port, direct => 1 };
    if (F('li-table-ten') && @by_order > 10) { delete $known{ shift @by_order } }
}

sub info {
    my ($id) = @_;
    my $node = $known{$id};
    return { node_id => F('gr-listed-id-hex') ? unpack('H*', $id) : $id, ip => F('gr-listed-no-address') ? '' : $node->{ip}, port => $node->{port} };
}

sub closest {
    my ($target, $how) = @_;
    my $point = length $target == 20 ? $target : sha1($target);
    my @ids = keys %known;
    my @order = sort { ($a ^ $point) cmp ($b ^ $point) } @ids;
    @order = sort { (substr($a, 0, 1) ^ substr($point, 0, 1)) cmp (substr($b, 0, 1) ^ substr($point, 0, 1)) || $b cmp $a } @ids if F('re-distance-first-byte');
    @order = sort { abs(unpack('N', $a) - unpack('N', $point)) <=> abs(unpack('N', $b) - unpack('N', $point)) } @ids if F('re-distance-difference');
    @order = grep { $known{$_} } @by_order if F('re-closest-oldest') || F('re-value-nodes-oldest') && $how eq 'value';
    shift @order if F('re-closest-skips-exact') && @order && $order[0] eq $point;
    shift @order if F('re-closest-skips-first') && @order > K();
    splice @order, K() if @order > K();
    my @list = map { info($_) } @order;
    push @list, $list[0] if F('re-closest-twice') && @list;
    push @list, @recent if F('re-address-twice');
    @list = reverse @list if P('nodes-reversed');
    return \@list;
}

sub ping {
    my ($request) = @_;
    meet($request);
    return F('gr-ping-echo') && $request->{sender} ? { responder => $request->{sender} } : { responder => self() };
}

sub find_node {
    my ($request) = @_;
    my $target = $request->{target_id};
    if (length $target != 20) { die Plum::Grpc::status(F('gr-target-length-internal') ? 13 : F('gr-target-length-out-of-range') ? 11 : 3, 'target_id does not have 20 bytes') }
    meet($request);
    return { nodes => closest($target, 'node'), F('gr-find-no-responder') ? () : (responder => self()) };
}

sub stored_key { my ($key) = @_; return F('gr-key-last-two') && length $key > 2 ? substr $key, -2 : F('gr-key-eight-bytes') ? substr $key, 0, 8 : F('gr-key-as-text') ? unpack('Z*', $key) : $key }

sub find_value {
    my ($request) = @_;
    Plum::Grpc::invalid('key is empty') unless length $request->{key};
    meet($request);
    my $key  = stored_key($request->{key});
    my $held = $value{$key};
    if ($held && $held->{reads}++ && F('ef-value-once')) { delete $value{$key}; $held = undef }
    return { responder => self(), found => F('gr-found-always') ? 1 : 0, nodes => closest($request->{key}, 'value'), F('gr-value-not-found') ? (value => 'none') : () } unless $held;
    my $text = $held->{value};
    return { responder => self(), value => $text, found => F('gr-found-never') ? 0 : 1 };
}

sub store {
    my ($request) = @_;
    my ($key, $text) = @$request{qw(key value)};
    Plum::Grpc::invalid('key is empty') unless length $key;
    Plum::Grpc::invalid('key does not have 20 bytes') if P('keys-of-twenty') && length $key != 20;
    my $refused = !length $text;
    $refused = 1 if P('first-value-stays') && $value{$key} && $value{$key}{value} ne $text;
    $refused = 1 if F('gr-store-twenty-only-stored') && length $key != 20;
    meet($request);
    if ($refused) {
        $value{$key} = { value => $text } if F('gr-store-twenty-only-stored') && length $text;
        return { F('gr-refused-no-responder') ? () : (responder => self()), success => 0 };
    }
    $text =~ s/\n.*//s if F('gr-value-first-line');
    $text = substr $text, 0, 65_535 if F('li-value-sixty-four');
    $text = substr $text, 0, 255 if F('gr-value-cut');
    $text =~ s/[^\x00-\x7f]/?/g if F('gr-value-ascii');
    $text = lc $text if F('gr-value-lower');
    $value{ stored_key($key) } = { value => $text } unless F('ef-store-not-kept');
    if (F('li-values-three')) { push @recent, stored_key($key); delete $value{ shift @recent } while @recent > 3 }
    return { responder => self(), success => 1 };
}
1;

package Plum::Keys;
# Keys of the toy chain: secp256k1, compressed public keys in hexadecimal, ECDSA over SHA-256.
use strict;
use warnings;
use Crypt::PK::ECC;
use Digest::SHA qw(sha256 sha256_hex);
use MIME::Base64 qw(encode_base64);
use Cpanel::JSON::XS ();
use Plum::Switch;

use constant { CHAIN => 'plum-grove-1', SERVED => sha256_hex('served adapter of round 11'), PRICE => 48_000, FEE => 2_000 };
my $json = Cpanel::JSON::XS->new->canonical->utf8;
my %key;

sub key {
    my ($name) = @_;
    return $key{$name} ||= do {
        my $pk = Crypt::PK::ECC->new;
        $pk->import_key_raw(sha256("toy key of $name"), 'secp256k1');
        $pk;
    };
}
sub public { return unpack 'H*', key($_[0])->export_key_raw('public_compressed') }

sub sign {
    my ($name, $payload) = @_;
    return unpack 'H*', key($name)->sign_message($payload, 'SHA256');
}

sub verify {
    my ($public, $payload, $signature) = @_;
    return 0 unless ($public // '') =~ /^0[23][0-9a-f]{64}$/ && ($signature // '') =~ /^(?:[0-9a-f]{2}){8,80}$/;
    return eval {
        my $pk = Crypt::PK::ECC->new;
        $pk->import_key_raw(pack('H*', $public), 'secp256k1');
        $pk->verify_message(pack('H*', $signature), $payload, 'SHA256');
    } ? 1 : 0;
}

sub envelope {
    my ($name, $body, $forge) = @_;
    my $payload = $json->encode($body);
    my $signed  = $forge ? $json->encode({ %$body, forged => 'other content' }) : $payload;
    return $json->encode({ payload => Encode::decode('UTF-8', $payload), public_key => public($name), signature => sign($name, $signed) });
}

sub request_id { return 'rq' . substr sha256_hex("request $_[0]"), 0, 38 }

# What `node.pl sign` prints.
sub sign_tool {
    my ($kind, $text) = @_;
    my $ask = $json->decode($text || '{}');
    my %role = (prompt => 'provider', default => 'provider', silent => 'silent');
    if ($kind eq 'request') {
        my $name     = $ask->{buyer_account} || $ask->{account} || 'buyer';
        my $provider = $ask->{provider} // 'prompt';
        my %body     = (
            type => 'inference', buyer => public($name), chain_id => $ask->{chain_id} // CHAIN, nonce => 0 + ($ask->{nonce} // 0),
            provider => $role{$provider} ? public($role{$provider}) : $provider, checkpoint => SERVED,
            prompt => $ask->{prompt} // 'plum trees in spring', max_tokens => 0 + ($ask->{max_tokens} // 16),
            price_atoms => PRICE, expires_height => 0 + ($ask->{expires_height} // 1_000),
        );
        my $tx = envelope($name, \%body, $ask->{forge});
        return $json->encode({
            rpc => { jsonrpc => '2.0', id => 1, method => 'broadcast_tx_sync', params => { tx => encode_base64($tx, '') } },
            request_id => request_id($json->encode(\%body)), hash => uc sha256_hex($tx), public_key => public($name),
            cost_atoms => PRICE + FEE . '', prompt => $body{prompt},
        });
    }
    if ($kind eq 'work') {
        my $act  = $ask->{act} || 'poll';
        my %body = (type => "work.$act", chain_id => $ask->{chain_id} // CHAIN, time => time);
        if ($act eq 'result') { $body{attempt} = $ask->{attempt} // 'none'; $body{output} = $ask->{output} // 'ok' }
        my $message = envelope($ask->{account} || 'worker', \%body, $ask->{forge});
        return $json->encode({ path => "/work/$act", message => $json->decode($message) });
    }
    die "KIND is request or work\n";
}
1;

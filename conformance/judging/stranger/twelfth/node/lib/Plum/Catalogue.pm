package Plum::Catalogue;
# The lists of faults and peculiarities: tables of lines with fields separated by tabs.
use strict;
use warnings;
use Encode ();
use FindBin;
use Plum::Json;

sub rows {
    my ($name) = @_;
    open my $file, '<:encoding(UTF-8)', "$FindBin::Bin/$name" or die "$name: $!\n";
    return map { chomp; [ split /\t/ ] } grep { /\S/ } <$file>;
}

sub listing {
    my @faults = map { { id => $_->[0], kind => $_->[1], section => $_->[2], sentence => $_->[3], text => $_->[4] } } rows('faults.tsv');
    my @peculiarities = map { { id => $_->[0], text => $_->[1] } } rows('peculiarities.tsv');
    return encode_json_({ faults => \@faults, peculiarities => \@peculiarities }) . "\n";
}

sub know {
    my ($what, $id) = @_;
    my $name = $what eq 'fault' ? 'faults.tsv' : 'peculiarities.tsv';
    die "there is no $what with this name\n" unless defined $id && grep { $_->[0] eq $id } rows($name);
}
1;

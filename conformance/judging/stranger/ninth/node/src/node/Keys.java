package node;

import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PublicKey;
import java.security.SecureRandom;
import java.security.Signature;
import java.security.interfaces.EdECPublicKey;
import java.security.spec.NamedParameterSpec;
import java.security.spec.X509EncodedKeySpec;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Ed25519 keys; public keys are written as 64 hex digits (the compressed point). */
final class Keys {
    private static final byte[] PREFIX = Util.unhex("302a300506032b6570032100");
    private static final Map<String, Keys> NAMED = new ConcurrentHashMap<>();
    private final KeyPair pair;

    private Keys(KeyPair pair) {
        this.pair = pair;
    }

    /** A deterministic key. */
    static Keys named(String name) {
        return NAMED.computeIfAbsent(name, n -> {
            try {
                byte[] seed = Util.digest("SHA-256", Util.utf8("ninth built-in key " + n));
                KeyPairGenerator g = KeyPairGenerator.getInstance("Ed25519");
                g.initialize(NamedParameterSpec.ED25519, new SecureRandom() {
                    @Override
                    public void nextBytes(byte[] b) {
                        System.arraycopy(seed, 0, b, 0, Math.min(b.length, seed.length));
                    }
                });
                return new Keys(g.generateKeyPair());
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
    }

    byte[] publicKey() {
        byte[] enc = ((EdECPublicKey) pair.getPublic()).getEncoded();
        byte[] raw = new byte[32];
        System.arraycopy(enc, enc.length - 32, raw, 0, 32);
        return raw;
    }

    String hex() {
        return Util.hex(publicKey());
    }

    String sign(String text) {
        try {
            Signature s = Signature.getInstance("Ed25519");
            s.initSign(pair.getPrivate());
            s.update(Util.utf8(text));
            return Util.hex(s.sign());
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    static boolean verify(String publicHex, String text, String signatureHex) {
        try {
            byte[] raw = Util.unhex(publicHex);
            byte[] sig = Util.unhex(signatureHex);
            if (raw == null || raw.length != 32 || sig == null || sig.length != 64) {
                return false;
            }
            byte[] enc = new byte[44];
            System.arraycopy(PREFIX, 0, enc, 0, 12);
            System.arraycopy(raw, 0, enc, 12, 32);
            PublicKey k = KeyFactory.getInstance("Ed25519").generatePublic(new X509EncodedKeySpec(enc));
            Signature s = Signature.getInstance("Ed25519");
            s.initVerify(k);
            s.update(Util.utf8(text));
            return s.verify(sig);
        } catch (Exception e) {
            return false;
        }
    }

}

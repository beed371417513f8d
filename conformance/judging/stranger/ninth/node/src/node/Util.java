package node;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import java.util.HexFormat;

final class Util {
    private Util() {}

    static byte[] digest(String alg, byte[]... parts) {
        try {
            MessageDigest md = MessageDigest.getInstance(alg);
            for (byte[] p : parts) {
                md.update(p);
            }
            return md.digest();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    static String sha256(byte[] b) {
        return hex(digest("SHA-256", b));
    }

    static String sha256(String s) {
        return sha256(utf8(s));
    }

    static String hex(byte[] b) {
        return HexFormat.of().formatHex(b);
    }

    static byte[] unhex(String s) {
        try {
            return HexFormat.of().parseHex(s);
        } catch (RuntimeException e) {
            return null;
        }
    }

    static byte[] utf8(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    static String time(Instant t) {
        if (P.on("time-offset")) {
            return DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss'+00:00'").withZone(ZoneOffset.UTC).format(t);
        }
        return t.truncatedTo(ChronoUnit.MILLIS).toString();
    }

    static LocalDate today() {
        return LocalDate.now(ZoneOffset.UTC);
    }

    static String date(LocalDate d) {
        return d.toString();
    }

    static String localTime(Instant t) {
        return LocalDateTime.ofInstant(t, ZoneId.of("Asia/Kolkata")).truncatedTo(ChronoUnit.SECONDS).toString();
    }
}

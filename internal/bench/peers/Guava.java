import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnels;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * Guava ALL LISTED ABSENT: for each word on standard input, prints a number when
 * it is done: build makes a filter of all keys and prints its bits; listed and
 * absent print how many keys of that file are perhaps in the filter.
 */
class Guava {
    public static void main(String[] args) throws Exception {
        byte[][] all = keys(args[0]), listed = keys(args[1]), absent = keys(args[2]);
        // The compiler of the JVM is warm before the first figure.
        BloomFilter<byte[]> filter = null;
        for (long asked = 0; asked < 5_000_000; asked += listed.length + absent.length) {
            filter = build(Arrays.copyOf(all, Math.min(all.length, 300_000)));
            perhaps(filter, listed);
            perhaps(filter, absent);
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String word; (word = in.readLine()) != null; ) {
            long answer;
            switch (word) {
                case "build":
                    filter = null; // two of them at once are not what is measured
                    filter = build(all);
                    answer = bits(filter);
                    break;
                case "listed":
                    answer = perhaps(filter, listed);
                    break;
                default:
                    answer = perhaps(filter, absent);
            }
            System.out.println(answer);
        }
    }

    static BloomFilter<byte[]> build(byte[][] keys) {
        BloomFilter<byte[]> filter = BloomFilter.create(Funnels.byteArrayFunnel(), keys.length, 0.01);
        for (byte[] key : keys) {
            filter.put(key);
        }
        return filter;
    }

    static int perhaps(BloomFilter<byte[]> filter, byte[][] keys) {
        int n = 0;
        for (byte[] key : keys) {
            if (filter.mightContain(key)) {
                n++;
            }
        }
        return n;
    }

    /** The filter has no public word for its size, but writes itself down. */
    static long bits(BloomFilter<byte[]> filter) throws Exception {
        long[] bytes = new long[1];
        filter.writeTo(new OutputStream() {
            @Override public void write(int b) {
                bytes[0]++;
            }

            @Override public void write(byte[] b, int from, int n) {
                bytes[0] += n;
            }
        });
        return 8 * bytes[0];
    }

    static byte[][] keys(String path) throws Exception {
        byte[] text = Files.readAllBytes(Path.of(path));
        int lines = 0;
        for (byte b : text) {
            if (b == '\n') {
                lines++;
            }
        }
        byte[][] keys = new byte[lines][];
        for (int i = 0, from = 0, at = 0; at < text.length; at++) {
            if (text[at] == '\n') {
                keys[i++] = Arrays.copyOfRange(text, from, at);
                from = at + 1;
            }
        }
        return keys;
    }
}

package echoless;

import java.util.Arrays;

/** xorshift32 from a mixed start, so that record i needs no record before it. */
final class Draws {
    private int state;

    Draws(int seed, int number) {
        int x = seed + 0x9e3779b9 * (number + 1);
        x ^= x >>> 16;
        x *= 0x7feb352d;
        x ^= x >>> 15;
        x *= 0x846ca68b;
        x ^= x >>> 16;
        state = x == 0 ? 1 : x;
    }

    int draw() {
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        return state;
    }

    int below(int bound) {
        return Integer.remainderUnsigned(draw(), bound);
    }

    byte[] fill(int length) {
        byte[] content = new byte[(length + 15) / 16 * 16];
        for (int block = 0; block < content.length; block += 16) {
            int word = draw();
            for (int i = 0; i < 16; i++) {
                content[block + i] = (byte) (word >>> (8 * (i % 4)));
            }
        }
        return Arrays.copyOf(content, length);
    }
}

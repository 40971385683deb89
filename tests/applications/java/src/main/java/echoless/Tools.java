package echoless;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** Calls main methods of Kafka's tools, one a line (class and arguments, separated by tabs), in one JVM. */
public final class Tools {
    private Tools() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t");
            String[] rest = java.util.Arrays.copyOfRange(parts, 1, parts.length);
            Class.forName(parts[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
            System.out.println("\n\u0004");
            System.out.flush();
        }
    }
}

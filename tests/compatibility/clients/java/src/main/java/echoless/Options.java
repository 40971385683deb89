package echoless;

import java.util.HashMap;
import java.util.Map;

/** The command line: a command, then `--name value` pairs. */
final class Options {
    final String command;
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments) {
        if (arguments.length % 2 == 0) {
            throw new IllegalArgumentException("expected a command and --name value pairs");
        }
        command = arguments[0];
        for (int i = 1; i < arguments.length; i += 2) {
            values.put(arguments[i].substring(2), arguments[i + 1]);
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name) {
        return Integer.parseUnsignedInt(text(name));
    }

    long number(String name, long otherwise) {
        return Long.parseLong(text(name, Long.toString(otherwise)));
    }
}

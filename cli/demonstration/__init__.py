"""The parts of `echoless demo`: a broker, a network that loses acknowledgements, a producer."""

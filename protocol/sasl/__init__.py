"""SASL exchanges as pure machines: tokens in, tokens out. Server and client side, PLAIN, SCRAM and OAUTHBEARER."""

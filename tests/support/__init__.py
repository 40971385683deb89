"""Parts that tests share: launchers, fakes, raw clients."""

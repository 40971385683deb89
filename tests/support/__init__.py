"""What tests share: launchers, fakes, raw clients."""

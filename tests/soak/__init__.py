"""All clients under random fault rules, judged record by record: README.md beside this file."""

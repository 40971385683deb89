"""The admin port: HTTP and JSON for people, monitoring and orchestration (`docs/admin.md`)."""

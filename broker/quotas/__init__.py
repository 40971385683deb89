"""Quotas: what each user and client may use, as it is stored, and how much they have used."""

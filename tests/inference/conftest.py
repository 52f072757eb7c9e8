"""Puts `scripted_world` on the path of the tests in folders below."""

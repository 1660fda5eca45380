"""The evidence of a failing run as a folder that can be looked at, checked and handed on."""

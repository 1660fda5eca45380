"""Plots as SVG, PNG and tables, drawn without a library: what a page shows without JavaScript."""

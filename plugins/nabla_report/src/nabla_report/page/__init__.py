"""The HTML page: verdict, causes, issues, plots, and the rest, in this order."""

"""Runs of contestants: clock, evaluation, their process, results that outlive crashes."""

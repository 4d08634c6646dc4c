"""What every part runs on: the clock, the wheel thread, forks and exits, pools of threads, private files."""

"""What every stream of ours needs: a run that can be stopped, figures, a line on the terminal, metrics."""

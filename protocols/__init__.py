"""Floor 2: who sends what to whom so that only the intended value is revealed. Knows no SVM and no data set."""

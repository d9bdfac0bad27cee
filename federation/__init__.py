"""Floor 1: processes, sockets, messages, identity, time and counting. Knows no protocol and no SVM."""

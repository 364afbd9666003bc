"""Functions over elements without keys as operator kinds in the graph, alone and with a broadcast map."""

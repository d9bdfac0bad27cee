"""Choosing columns over sites that hold rows, and a PAN-SVM on those that are chosen.

filters    scores of columns from sums over the classes: Welch's t, F, Fisher's ratio, mutual information, mRMR
model      the model of chosen columns, the settings that all methods share, and what a fit does after the choice
"""

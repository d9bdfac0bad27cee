"""Places where the public data sets that scenarios name can be downloaded."""

from __future__ import annotations

_ORIGINS = {
    "pima_diabetes": "UCI Pima Indians Diabetes (NIDDK); "
    "https://github.com/jbrownlee/Datasets, pima-indians-diabetes.csv",
    "fourclass": "LIBSVM binary data (Ho and Kleinberg 1996); "
    "https://github.com/sfujiwara/robust-svm, data/LIBSVM/fourclass/fourclass",
    "fourclass_scale": "LIBSVM binary data (Ho and Kleinberg 1996); "
    "https://github.com/sfujiwara/robust-svm, data/LIBSVM/fourclass/fourclass_scale",
    "ionosphere": "UCI Ionosphere; https://github.com/jbrownlee/Datasets, ionosphere.csv",
    "australian": "UCI Statlog Australian credit approval; "
    "https://github.com/rajdeep-cse17/Class_Imbalance, data/australian.dat",
    "breast_cancer_wisconsin": "UCI Breast Cancer Wisconsin (Original); "
    "https://github.com/jbrownlee/Datasets, breast-cancer-wisconsin.data",
    "bupa_liver": "UCI Liver Disorders (BUPA Medical Research); https://github.com/amritmaj/SVM-Tree, bupa.data",
    "splice_train": "UCI/Delve Splice, via LIBSVM splice; "
    "https://github.com/aquemy/HCBR, data/splice.txt (rows 1-1000)",
    "splice_test": "UCI/Delve Splice, via LIBSVM splice.t; "
    "https://github.com/aquemy/HCBR, data/splice.txt (rows 1001-3175)",
    "adult_train": "UCI Adult (1994 US census extract by Kohavi and Becker); "
    "https://github.com/jbrownlee/Datasets, adult-train.csv",
    "adult_test": "UCI Adult (1994 US census extract by Kohavi and Becker); "
    "https://github.com/jbrownlee/Datasets, adult-test.csv",
    "a9a_train": "LIBSVM a9a (Platt encoding of UCI Adult); https://github.com/cugzj/Adaptive-VFL-Tensorflow, data/a9a",
    "a9a_test": "LIBSVM a9a.t (Platt encoding of UCI Adult); https://github.com/UltramanGaia/ML2017-lab-02, data/a9a.t",
    "cod_rna": "LIBSVM cod-rna, training file (Uzilov, Keegan and Mathews 2006); "
    "https://github.com/sfujiwara/robust-svm, data/LIBSVM/cod-rna/cod-rna.csv",
    "dna_train": "Statlog DNA, via LIBSVM dna.scale; https://github.com/zpli0320/dataset, dna.scale",
    "dna_test": "Statlog DNA, via LIBSVM dna.scale.t; https://github.com/zpli0320/dataset, dna.scale.t",
    "letter": "UCI Letter Recognition (Frey and Slate); "
    "https://github.com/wxhucong/Ensemble_Learning, letter-recognition.data",
    "lung_cancer": "UCI Lung Cancer (Hong and Yang); https://github.com/wxhucong/Ensemble_Learning, lung-cancer.data",
    "colon": "Alon et al. 1999 (Princeton), via Bioconductor colonCA; "
    "https://github.com/ramhiser/datamicroarray, data/alon.RData (object alon)",
    "leukemia": "Golub et al. 1999 (Broad Institute), via Bioconductor golubEsets; "
    "https://github.com/ramhiser/datamicroarray, data/golub.RData (object golub)",
    "dlbcl": "Alizadeh et al. 2000 (Stanford), via the Kent Ridge set DLBCL-Stanford; "
    "https://github.com/salviogoal/python, datasets/DLBCL.arff",
    "heart": "UCI Statlog Heart, via LIBSVM; https://github.com/sfujiwara/robust-svm, data/LIBSVM/heart/heart",
    "german": "UCI Statlog German credit, numeric version (Strathclyde); "
    "https://github.com/KevinChittilapilly/Fairness-Research, german.data-numeric.txt",
    "vowel": "UCI Connectionist Bench Vowel (Deterding, Niranjan and Robinson; "
    "Turney version); https://github.com/renatopp/arff-datasets, classification/vowel.arff (its training part)",
}


def origin(name: str) -> str:
    """Return the place of a data set by the name of its file, or "" if it is not known."""
    return _ORIGINS.get(name, "")

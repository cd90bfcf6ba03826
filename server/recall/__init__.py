"""Finding: arms, fusion, explanation."""

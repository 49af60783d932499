"""Array functions that are recorded; one module for each section of the array API standard."""
